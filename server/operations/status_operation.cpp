#include "server/operations/status_operation.hpp"

#include <algorithm>

namespace gpunbd::server {

namespace {

// A reply may stop short of the range ("NBD_CMD_BLOCK_STATUS"): so many pages are looked at, at
// most, which is 64 GiB of the usual ones. In the worst case each is an extent.
constexpr std::uint64_t max_pages = 32 * 1024;
constexpr std::size_t extent_bytes = sizeof(protocol::Extent);  // on the wire no more than that
constexpr std::size_t header_bytes = protocol::max_reply_header;

}  // namespace

std::uint64_t StatusOperation::max_memory(const protocol::Command& command,
                                          std::uint64_t page_size) {
    if (command.one_extent) return 2 * extent_bytes + header_bytes;
    const std::uint64_t pages = std::min(max_pages, command.length / page_size + 2);
    return pages * extent_bytes + header_bytes;
}

void StatusOperation::begin() {
    const storage::TransferContext context = context_->transfer_context();
    const storage::Volume& volume = context.volume;
    const std::uint64_t length = std::min(command_.length, max_pages * volume.page_size());
    const std::uint64_t end = command_.offset + length;
    std::vector<protocol::Extent> extents;
    for (std::uint64_t at = command_.offset; at != end;) {
        const storage::Volume::Run run = volume.run_at(at, end - at);
        extents.push_back({.length = run.length,
                           .status = run.mapped ? 0 : protocol::state_hole | protocol::state_zero});
        at += run.length;
        if (command_.one_extent) break;
    }
    reply_.clear();
    context_->encoder().block_status(reply_, command_, extents);
    SendQueue::Item& item = context_->send_queue().add();
    item.payload = reply_.data();
    item.payload_length = reply_.size();
    item.sender = this;
}

void StatusOperation::sent() {
    std::vector<std::byte>().swap(reply_);  // it may be long, and the operation is kept
    context_->finish(*this);
}

void StatusOperation::abandon() { sent(); }

}  // namespace gpunbd::server
