#include "server/nbd/command_cost.hpp"

#include <algorithm>

#include "server/nbd/read_operation.hpp"
#include "server/nbd/status_operation.hpp"

namespace gpunbd::server {

using protocol::Command;
using protocol::CommandType;

namespace {

constexpr std::uint64_t max_work = 256 * 1024;  // of one request, in a turn
constexpr std::uint64_t page_work = 8 * 1024;   // to map or unmap a page
// The same for in_flight_cost().
constexpr std::uint64_t request_cost = 512;
constexpr std::uint64_t page_cost = 4096;

std::int64_t with_request(std::uint64_t bytes) {
    return request_work + static_cast<std::int64_t>(std::min(bytes, max_work));
}

}  // namespace

std::int64_t turn_work(const Command& command, std::uint64_t page_size) {
    switch (command.type) {
        case CommandType::read:
            return with_request(command.length);
        case CommandType::trim:
        case CommandType::write_zeroes:
            return with_request(command.length / page_size * page_work);
        case CommandType::block_status:
            return with_request(command.length / page_size * command.contexts.count());
        case CommandType::write:
        case CommandType::disc:
        case CommandType::flush:
        case CommandType::cache:
            break;
    }
    return request_work;
}

std::uint64_t in_flight_cost(const Command& command, std::uint64_t page_size) {
    switch (command.type) {
        case CommandType::read:
        case CommandType::write:
            return request_cost + command.length;
        case CommandType::trim:
        case CommandType::write_zeroes:
            return request_cost +
                   (command.no_hole ? command.length : command.length / page_size * page_cost);
        case CommandType::block_status:
        case CommandType::disc:
        case CommandType::flush:
        case CommandType::cache:
            break;
    }
    return request_cost;
}

std::uint64_t rate_cost(const Command& command) {
    switch (command.type) {
        case CommandType::read:
        case CommandType::write:
            return command.length;
        case CommandType::trim:
        case CommandType::write_zeroes:
        case CommandType::block_status:
        case CommandType::disc:
        case CommandType::flush:
        case CommandType::cache:
            break;
    }
    return 0;
}

std::uint64_t memory_cost(const Command& command, std::uint64_t page_size) {
    switch (command.type) {
        case CommandType::block_status:
            return StatusOperation::max_memory(command, page_size);
        case CommandType::read:
        case CommandType::write:
        case CommandType::trim:
        case CommandType::write_zeroes:
        case CommandType::disc:
        case CommandType::flush:
        case CommandType::cache:
            break;
    }
    return sizeof(ReadOperation);
}

}  // namespace gpunbd::server
