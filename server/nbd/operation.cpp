#include "server/nbd/operation.hpp"

#include <new>

#include "server/nbd/failure_log.hpp"

namespace gpunbd::server {

void Operation::transfer_moved(storage::Transfer&) {
    OperationContext& context = *context_;  // the operation may be gone afterwards
    try {
        moved();
    } catch (const std::bad_alloc&) {
        context.run_out_of_memory();
    }
}

void Operation::succeed() {
    answered();
    context_->add_success(command_);
}

void Operation::fail(storage::Status status, std::optional<std::uint64_t> at) {
    answered();
    context_->report_failure(command_, status);
    context_->add_error({.error = wire_error(status),
                         .cookie = command_.cookie,
                         .offset = command_.offset,
                         .text = wire_text(status),
                         .failed_at = at});
}

}  // namespace gpunbd::server
