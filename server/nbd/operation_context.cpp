#include "server/nbd/operation_context.hpp"

#include <span>

#include "server/nbd/failure_log.hpp"

namespace gpunbd::server {

void OperationContext::add_error(const protocol::Refusal& refusal) {
    SendQueue::Item& item = send_queue_.add();
    const auto encoded = encoder_.error(item.header, refusal);
    item.header_length = static_cast<std::uint8_t>(encoded.header_length);
    const auto text = std::as_bytes(std::span(encoded.text));
    item.payload = text.data();
    item.payload_length = static_cast<std::uint32_t>(text.size());
    if (!encoded.offset_follows) return;
    SendQueue::Item& offset = send_queue_.add();
    offset.header_length = static_cast<std::uint8_t>(
        protocol::ReplyEncoder::error_offset(offset.header, *refusal.failed_at));
}

void OperationContext::report_failure(const protocol::Command& command, storage::Status status) {
    accounting_.failed(command.type, wire_error(status));
    failure_log_.report_failure(command, status, transfer_->volume);
}

}  // namespace gpunbd::server
