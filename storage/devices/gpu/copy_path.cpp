#include "storage/devices/gpu/copy_path.hpp"

#include <fmt/format.h>

namespace gpunbd::storage {

namespace {

const char* name_of(Copy::Kind kind) {
    switch (kind) {
        case Copy::Kind::read:
            return "read";
        case Copy::Kind::write:
            return "write";
        case Copy::Kind::zero:
            return "zeroing";
    }
    return "copy";
}

}  // namespace

std::string to_text(const Copy& copy) {
    return fmt::format("a {} of {} bytes at device address {:#x}", name_of(copy.kind), copy.length,
                       copy.address);
}

}  // namespace gpunbd::storage
