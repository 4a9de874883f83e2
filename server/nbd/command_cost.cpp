#include "server/nbd/command_cost.hpp"

#include <algorithm>

#include "server/nbd/read_operation.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

using protocol::Command;
using protocol::CommandType;

namespace {

constexpr std::uint64_t max_work = 256 * 1024;  // of one request, in a turn
constexpr std::uint64_t page_work = 8 * 1024;   // to map or unmap a page
constexpr std::uint64_t look_work = 8;          // to look at a page for BLOCK_STATUS
constexpr std::uint64_t run_work = 128;         // to report a run of pages
// The same for CommandCost::in_flight.
constexpr std::uint64_t request_cost = 512;
constexpr std::uint64_t page_cost = 4096;

}  // namespace

CommandCost cost_of(const Command& command, std::uint64_t page_size) {
    GPUNBD_ASSERT(page_size != 0, "an export that is served has pages");
    std::uint64_t work = 0;
    std::uint64_t in_flight = 0;
    std::uint64_t memory = sizeof(ReadOperation);
    switch (command.type) {
        case CommandType::read:
            work = in_flight = command.length;
            break;
        case CommandType::write:
            in_flight = command.length;
            break;
        case CommandType::trim:
        case CommandType::write_zeroes:
            work = command.length / page_size * page_work;
            in_flight = command.no_hole ? command.length : command.length / page_size * page_cost;
            break;
        case CommandType::block_status:
            work = command.contexts.count() *
                   (StatusOperation::pages_read(command, page_size) * look_work +
                    StatusOperation::runs_found(command, page_size) * run_work);
            memory = StatusOperation::max_memory(command, page_size);
            break;
        case CommandType::disc:
        case CommandType::flush:
        case CommandType::cache:
            break;
    }
    return {.turn = request_work + static_cast<std::int64_t>(std::min(work, max_work)),
            .in_flight = request_cost + in_flight,
            .memory = memory};
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

}  // namespace gpunbd::server
