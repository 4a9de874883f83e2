#include "server/operations/operation_context.hpp"

#include <span>

#include "server/operations/operation.hpp"
#include "server/operations/wire_error.hpp"

namespace gpunbd::server {

void OperationContext::succeed(const Operation& operation) {
    protocol::ReplyHeader header;
    add_header(header, encoder_.success(header, operation.command()));
}

void OperationContext::fail(const Operation& operation, storage::Status status,
                            std::optional<std::uint64_t> at) {
    report_failure(operation, status);
    const protocol::Command& command = operation.command();
    add_error({.error = wire_error(status),
               .cookie = command.cookie,
               .offset = command.offset,
               .text = wire_text(status),
               .failed_at = at});
}

void OperationContext::add_error(const protocol::Refusal& refusal) {
    SendQueue::Item& item = send_queue_.add();
    const auto encoded = encoder_.error(item.header, refusal);
    item.header_length = static_cast<std::uint8_t>(encoded.header_length);
    const auto text = std::as_bytes(std::span(encoded.text));
    item.payload = text.data();
    item.payload_length = text.size();
    if (!encoded.offset_follows) return;
    protocol::ReplyHeader offset;
    add_header(offset, protocol::encode_error_offset(offset, *refusal.failed_at));
}

void OperationContext::add_header(const protocol::ReplyHeader& header, std::size_t length) {
    SendQueue::Item& item = send_queue_.add();
    item.header = header;
    item.header_length = static_cast<std::uint8_t>(length);
}

}  // namespace gpunbd::server
