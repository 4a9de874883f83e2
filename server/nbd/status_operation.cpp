#include "server/nbd/status_operation.hpp"

#include <algorithm>

#include "server/nbd/operation_pools.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t extent_bytes = sizeof(protocol::Extent);  // on the wire no more than that
constexpr std::size_t header_bytes = protocol::max_reply_header;

std::uint32_t status_of(const storage::Volume::Run& run, protocol::MetaContext context) {
    if (context == protocol::MetaContext::device || context == protocol::MetaContext::dirty) {
        return run.device;
    }
    return run.device != 0 ? 0 : protocol::state_hole | protocol::state_zero;
}

}  // namespace

std::uint64_t StatusOperation::pages_read(const protocol::Command& command,
                                          std::uint64_t page_size) {
    return std::min(max_pages, command.length / page_size + 2);
}

std::uint64_t StatusOperation::runs_found(const protocol::Command& command,
                                          std::uint64_t page_size) {
    return std::min(max_runs, pages_read(command, page_size));
}

std::uint64_t StatusOperation::max_memory(const protocol::Command& command,
                                          std::uint64_t page_size) {
    const std::uint64_t extents = command.one_extent ? 1 : runs_found(command, page_size);
    const std::uint64_t replies = command.contexts.count();
    // The extents of one context at a time, and their encoded replies.
    return extents * extent_bytes + replies * (extents * extent_bytes + header_bytes);
}

void StatusOperation::begin() {
    become(RequestState::executing);
    GPUNBD_ASSERT(reply_.empty(), "a BLOCK_STATUS frees its reply when it has been sent");
    GPUNBD_ASSERT(command_.contexts.count() != 0, "a BLOCK_STATUS asks for a context");
    std::vector<protocol::Extent> extents;
    std::size_t left = command_.contexts.count();
    for (const protocol::MetaContext context : protocol::all_contexts) {
        if (!command_.contexts.has(context)) continue;
        extents.clear();
        find_extents(context, extents);
        context_->encoder().block_status(reply_, command_, context, extents, --left == 0);
    }
    GPUNBD_ASSERT(left == 0, "a BLOCK_STATUS is answered for each of its contexts");
    SendQueue::Item& item = context_->send_queue().add();
    item.payload = reply_.data();
    item.payload_length = static_cast<std::uint32_t>(reply_.size());
    item.reply = this;
    answered();
}

void StatusOperation::find_extents(protocol::MetaContext context,
                                   std::vector<protocol::Extent>& extents) const {
    if (context == protocol::MetaContext::instance) {
        extents.push_back(
            {.length = command_.length, .status = 0});  // the context's name says it all
        return;
    }
    const storage::Volume& volume = context_->transfer_context().volume;
    const bool compares = context == protocol::MetaContext::dirty;
    const storage::Volume* const related = compares ? context_->related_volume() : nullptr;
    if (compares && related == nullptr) {
        extents.push_back({.length = command_.length, .status = 1});  // all of it may differ
        return;
    }
    const std::uint64_t whole = max_pages * volume.page_size();
    const std::uint64_t length =
        std::min(command_.length, whole - volume.offset_in_page(command_.offset));
    const std::uint64_t end = command_.offset + length;
    std::uint64_t at = command_.offset;
    for (std::uint64_t runs = 0; at != end && runs != max_runs; ++runs) {
        const storage::Volume::Run run = related != nullptr
                                             ? volume.changed_run_at(*related, at, end - at)
                                             : volume.run_at(at, end - at);
        const std::uint32_t status = status_of(run, context);
        if (!extents.empty() && extents.back().status == status) {
            extents.back().length += run.length;  // on another device
        } else {
            if (command_.one_extent && !extents.empty()) break;
            extents.push_back({.length = run.length, .status = status});
        }
        GPUNBD_ASSERT(run.length != 0 && run.length <= end - at,
                      "a run of pages lies in the range for which it was asked");
        at += run.length;
    }
}

void StatusOperation::sent() {
    std::vector<std::byte>().swap(reply_);  // it may be long, and the operation stays in its pool
    context_->ended(*this);
}

void StatusOperation::abandon() {
    give_up_answer();
    sent();
}

void StatusOperation::give_back_to(OperationPools& pools) { pools.statuses.give_back(*this); }

}  // namespace gpunbd::server
