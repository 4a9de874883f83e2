#include "server/operations/operation_context.hpp"

#include "server/operations/operation.hpp"
#include "server/operations/wire_error.hpp"

namespace gpunbd::server {

void OperationContext::succeed(const Operation& operation) {
    protocol::ReplyHeader header;
    add_header(header, encoder_.success(header, operation.command()));
}

void OperationContext::fail(const Operation& operation, storage::Status status) {
    report_failure(operation, status);
    protocol::ReplyHeader header;
    add_header(header, encoder_.error(header, operation.command().cookie, wire_error(status)));
}

void OperationContext::add_header(const protocol::ReplyHeader& header, std::size_t length) {
    SendQueue::Item& item = send_queue_.add();
    item.header = header;
    item.header_length = static_cast<std::uint8_t>(length);
}

}  // namespace gpunbd::server
