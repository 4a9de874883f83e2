#include "protocol/constants.hpp"

namespace gpunbd::protocol {

std::string_view name_of(CommandType type) {
    switch (type) {
        case CommandType::read:
            return "READ";
        case CommandType::write:
            return "WRITE";
        case CommandType::disc:
            return "DISC";
        case CommandType::flush:
            return "FLUSH";
        case CommandType::trim:
            return "TRIM";
        case CommandType::cache:
            return "CACHE";
        case CommandType::write_zeroes:
            return "WRITE_ZEROES";
        case CommandType::block_status:
            return "BLOCK_STATUS";
    }
    return "unknown";
}

std::string_view name_of(Error error) {
    switch (error) {
        case Error::none:
            return "none";
        case Error::eperm:
            return "EPERM";
        case Error::eio:
            return "EIO";
        case Error::enomem:
            return "ENOMEM";
        case Error::einval:
            return "EINVAL";
        case Error::enospc:
            return "ENOSPC";
        case Error::eoverflow:
            return "EOVERFLOW";
        case Error::enotsup:
            return "ENOTSUP";
        case Error::eshutdown:
            return "ESHUTDOWN";
    }
    return "unknown";
}

}  // namespace gpunbd::protocol
