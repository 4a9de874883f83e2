#include "server/nbd/read_operation.hpp"

#include <algorithm>
#include <array>

#include "server/nbd/operation_pools.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t extent_bytes = sizeof(protocol::Extent);  // on the wire no more than that
constexpr std::size_t header_bytes = protocol::max_reply_header;

std::uint32_t status_of(const storage::Volume::Run& run, protocol::MetaContext context) {
    if (context != protocol::MetaContext::base_allocation) return run.device;
    return run.device != 0 ? 0 : protocol::state_hole | protocol::state_zero;
}

constexpr std::size_t zeroes_length = 256 * 1024;  // bytes
constexpr std::array<std::byte, zeroes_length> zeroes{};

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
        const storage::Volume::Run run =
            related != nullptr ? volume.changed_run_at(*related, at, end - at)
            : context == protocol::MetaContext::device ? volume.run_at(at, end - at)
            : context == protocol::MetaContext::cached ? volume.cached_run_at(at, end - at)
                                                       : volume.contents_run_at(at, end - at);
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

void ReadOperation::begin() {
    in_queue_ = 0;
    if (command_.length == 0) {
        succeed();
        context_->ended(*this);
        return;
    }
    if (context_->encoder().splits(command_)) return enter(Form::chunks);
    const storage::TransferContext& transfer = context_->transfer_context();
    // The pages of a longer READ may evict each other, so it fetches them one after another.
    const bool is_short = command_.length <= transfer.volume.page_size();
    has_fetched_ = transfer.volume.source() != nullptr && is_short &&
                   context_->send_queue().sequencer().begin_fetch();
    if (!has_fetched_) return enter(Form::whole);
    // While it waits for pages, other requests are taken.
    become(RequestState::fetching);
    transfer_.fetch_absent(transfer, *this, range());
    advance_fetch();
}

void ReadOperation::advance_fetch() {
    if (transfer_.is_fetching()) return;
    context_->send_queue().sequencer().end_fetch();
    if (transfer_.status() != storage::Status::ok) {
        fail(transfer_.status(), transfer_.failed_at());
        context_->ended(*this);
    } else if (context_->send_queue().sequencer().takes_requests()) {
        enter(Form::whole);
    } else {
        context_->send_queue().sequencer().wait_to_enter(*this);
    }
}

void ReadOperation::enter(Form form) {
    context_->send_queue().sequencer().enter(*this, form);
    become(RequestState::waiting);
    resume();
}

void ReadOperation::resume() {
    if (state() == RequestState::fetching) return enter(Form::whole);
    if (state() == RequestState::waiting) {
        if (!context_->send_queue().sequencer().begin(*this)) return;
        become(RequestState::executing);
        // What it has waited for pages counts as such.
        if (!has_fetched_) waits.begin(std::max(now(), received_at));
        transfer_.begin(context_->transfer_context(), *this, range());
    }
    advance();
}

void ReadOperation::moved() {
    context_->wakeup().flush_soon();
    state() == RequestState::fetching ? advance_fetch() : advance();
}

// Queues what is ready, and ends the operation once nothing is left of it.
void ReadOperation::advance() {
    if (needs_reply(state())) queue_ready();
    if (!needs_reply(state()) && in_queue_ == 0 && transfer_.idle()) context_->ended(*this);
}

void ReadOperation::queue_ready() {
    GPUNBD_ASSERT(state() != RequestState::waiting, "a READ that waits has no transfer");
    if (form() == Form::whole && !has_replied() && !transfer_.whole_ready()) {
        // It will take several polls and needs the stream to itself for all of them.
        if (transfer_.all_issued()) memory_complete();
        if (transfer_.ready() && !context_->send_queue().sequencer().hold(*this)) return;
    }
    for (storage::ReadTransfer::Piece piece; transfer_.next(piece);) {
        GPUNBD_ASSERT(piece.length != 0 && contains(command_, piece.offset, piece.length),
                      "the pieces of a READ lie in its range and have bytes");
        ++in_queue_;
        const bool last = transfer_.all_taken();
        if (form() == Form::chunks) {
            add_chunk(piece, last);
        } else {
            add_part_of_whole(piece);
        }
        if (last) {
            answered();
            leave_sequence();
            return;
        }
        if (!has_replied()) become(RequestState::replying);
    }
    if (transfer_.status() != storage::Status::ok && in_queue_ == 0) {
        fail_transfer();
    } else if (transfer_.all_issued()) {
        memory_complete();
    }
}

void ReadOperation::memory_complete() {
    if (state() == RequestState::executing) become(RequestState::staged);
    if (context_->send_queue().sequencer().staged(*this)) context_->wakeup().resume();
}

void ReadOperation::add_chunk(const storage::ReadTransfer::Piece& piece, bool last) {
    SendQueue::Item& item = context_->send_queue().add(this);
    const protocol::ReplyEncoder& encoder = context_->encoder();
    const bool hole = piece.data == nullptr;
    item.header_length = static_cast<std::uint8_t>(
        hole ? encoder.hole(item.header, command_, piece.offset, piece.length, last)
             : encoder.data(item.header, command_, piece.offset, piece.length, last));
    item.payload = piece.data;
    item.read = static_cast<std::uint32_t>(piece.length);
    item.payload_length = hole ? 0 : item.read;
    item.reply = this;
}

// The only header precedes the first piece. Holes are sent as zeroes.
void ReadOperation::add_part_of_whole(const storage::ReadTransfer::Piece& piece) {
    for (std::size_t left = piece.length; left != 0;) {
        const std::size_t part = piece.data != nullptr ? left : std::min(left, zeroes_length);
        left -= part;
        SendQueue::Item& item = context_->send_queue().add(this);
        if (!has_replied()) {
            item.header_length =
                static_cast<std::uint8_t>(context_->encoder().whole(item.header, command_));
            become(RequestState::replying);
        }
        item.payload = piece.data != nullptr ? piece.data : zeroes.data();
        item.read = item.payload_length = static_cast<std::uint32_t>(part);
        item.reply = left == 0 ? this : nullptr;
    }
}

void ReadOperation::fail_transfer() {
    const storage::Status status = transfer_.status();
    const bool can_report = form() == Form::chunks || !has_replied();
    transfer_.abandon();
    if (!can_report) {
        become(RequestState::broken);
        context_->report_failure(command_, status);
        context_->hang_up("a READ failed after the header of its only piece had been sent");
        return;
    }
    leave_sequence();
    fail(status, transfer_.failed_at());
}

void ReadOperation::sent() {
    GPUNBD_ASSERT(in_queue_ != 0, "each queued piece of a READ is sent once");
    --in_queue_;
    if (needs_reply(state())) waits.end(&storage::TransferWaits::socket, now());
    transfer_.give_back();
    advance();
}

void ReadOperation::abandon() {
    const bool has_begun = state() != RequestState::waiting;
    give_up_answer();
    in_queue_ = 0;
    if (has_begun) transfer_.abandon();
    advance();
}

void ReadOperation::give_back_to(OperationPools& pools) {
    GPUNBD_ASSERT(in_queue_ == 0 && transfer_.idle(),
                  "a READ that ends has given all lent memory back");
    pools.reads.give_back(*this);
}

}  // namespace gpunbd::server
