#include "server/nbd/connection.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t max_pieces = 512;  // of one send; IOV_MAX is 1024

}  // namespace

Connection::Connection(WorkerContext& worker, Socket socket, std::string peer,
                       std::uint64_t max_in_flight, std::shared_ptr<ConnectionCounters> counters)
    : OperationContext(worker.trace != nullptr ? &worker.trace->sent : nullptr,
                       Wakeup(worker.scheduler, *this),
                       RequestAccounting(std::move(counters), worker.trace.get()), std::move(peer)),
      worker_(worker),
      transport_(std::move(socket)),
      reader_(worker.receive_buffers),
      admission_(max_in_flight, worker.budget, *this) {}

Connection::~Connection() = default;

void Connection::serve(const protocol::NegotiatedOptions& negotiated,
                       std::shared_ptr<const Export> served, std::span<const std::byte> received,
                       std::shared_ptr<const Export> related) {
    GPUNBD_ASSERT(export_ == nullptr && !closed_, "a connection that is open serves one export");
    negotiated_ = negotiated;
    export_ = std::move(served);
    related_ = std::move(related);
    page_size_ = export_->volume->page_size();
    encoder_ = protocol::ReplyEncoder(negotiated_);
    transfer_.emplace(*export_->volume, worker_.channels, staging_);
    accounting_.serve(worker_.counters.of_export(export_->info.name), export_->activity);
    failure_log_.serve(negotiated_.export_info.name);
    for (storage::Device* device : export_->volume->devices()) worker_.channels.open(*device);
    reader_.begin(negotiated_.headers, received);
    transport_.begin_serving();
    worker_.scheduler.may_be_light(*this);
}

void Connection::start(Operation& operation, const protocol::Command& command,
                       const CommandCost& cost) {
    GPUNBD_ASSERT(!closed_, "a closed connection starts no request");
    GPUNBD_ASSERT(!operation.is_linked(), "an operation belongs to one connection");
    GPUNBD_ASSERT(lies_in_export(command), "a request that executes lies in the export");
    operation.cost = cost;
    const bool alone = operations_.empty();
    if (alone) worker_.scheduler.begins_work(*this);
    operations_.push_front(operation);
    admission_.enter(cost);
    accounting_.begin(operation, command.type, alone);
    operation.start(*this, command);
}

void Connection::ended(Operation& operation) {
    GPUNBD_ASSERT(operation.is_linked(), "an operation ends once");
    GPUNBD_ASSERT(!needs_reply(operation.state()), "an operation ends after its answer");
    operations_.erase(operations_.iterator_to(operation));
    if (operation.state() != RequestState::answered) [[unlikely]]
        accounting_.abandoned(operation.command().type);
    bool may_take = admission_.leave(operation.cost);
    if (&operation == half_written_) [[unlikely]] {
        half_written_ = nullptr;
        may_take = true;
        if (operation.state() == RequestState::answered) {  // it has failed, so its rest is dropped
            reader_.expect_discarded(half_write_.length - half_write_.arrived);
            half_write_ = {};
        }
    }
    operation.return_to(worker_.operations);
    if (operations_.empty()) {
        worker_.scheduler.ends_work(*this);
        if (draining_) transport_.stop_receiving();
    }
    if (may_take) wakeup_.resume();
}

void Connection::drain() {
    GPUNBD_ASSERT(export_ != nullptr, "a connection that drains has served");
    draining_ = true;
    quiesced_ = Quiesced::no;
    reason_ = "the server is stopping";
    if (export_->contents_outlive_server()) {
        // The client reconnects and repeats its unanswered requests. An error would be final.
        if (admission_.holding()) admission_.withdraw();
        stop_taking();
    }
    if (operations_.empty()) transport_.stop_receiving();
    // The coroutine may wait for resume() or for the rates, neither of which will come.
    wakeup_.resume();
}

void Connection::stop_taking() {
    end_of_requests_ = true;
    if (WriteOperation* const broken = reader_.stop_writing(); broken != nullptr) {
        broken->abandon();  // the rest of its payload will never arrive
    }
}

bool Connection::settle() {
    flush_all();
    wakeup_.clear();  // what flush_all() announced is checked here
    return closed_ || (operations_.empty() && send_queue_.empty());
}

void Connection::close(std::string reason) noexcept {
    if (closed_) return;
    closed_ = true;
    reason_ = std::move(reason);
    accounting_.publish();
    if (admission_.holding()) admission_.withdraw();
    reader_.stop_writing();
    send_queue_.clear();
    transport_.close();
    for (auto next = operations_.begin(); next != operations_.end();) (next++)->abandon();
    GPUNBD_ASSERT(send_queue_.empty(), "a closed connection sends nothing");
    wakeup_.resume();
}

void Connection::quiesce() {
    if (quiesced_ != Quiesced::no) {
        quiesced_ = Quiesced::yes;
        return;
    }
    if (reading_is_over()) return;
    GPUNBD_ASSERT(half_written_ == nullptr && half_write_.length == 0,
                  "the WRITE of an earlier pause goes on before the next pause");
    if (admission_.holding()) execute_held(admission_.withdraw());
    quiesced_ = Quiesced::yes;
    pause_write();
    wakeup_.resume();  // the next round sends what is queued
}

void Connection::pause_write() {
    const WriteOperation* const current = reader_.writing();
    if (current == nullptr) return;
    if (current->missing() != 0 && current->is_buffering()) return;  // until its page is there
    WriteOperation& write = *reader_.stop_writing();
    if (write.missing() == 0) return payload_complete(write);
    const protocol::Command& command = write.command();
    half_write_ = {.cookie = command.cookie,
                   .offset = command.offset,
                   .length = command.length,
                   .arrived = command.length - write.missing(),
                   .fua = command.fua};
    half_written_ = &write;
    write.hand_over();
}

void Connection::resume() {
    if (quiesced_ == Quiesced::yes) quiesced_ = Quiesced::resuming;
    wakeup_.resume();
}

void Connection::take_up_half_write() {
    GPUNBD_ASSERT(half_written_ == nullptr, "the part that had arrived is written before the rest");
    quiesced_ = Quiesced::no;
    if (half_write_.length == 0) return;
    const auto half = std::exchange(half_write_, {});
    const protocol::Command command{.type = protocol::CommandType::write,
                                    .cookie = half.cookie,
                                    .offset = half.offset,
                                    .length = half.length,
                                    .fua = half.fua};
    if (!lies_in_export(command)) {
        return refuse(protocol::refusal_beyond_end(command, half.length - half.arrived));
    }
    WriteOperation& write = worker_.operations.writes.take();
    write.skip(half.arrived);
    start(write, command, cost_of(command, page_size_));
    GPUNBD_ASSERT(write.missing() != 0, "a WRITE does not end before the rest of its payload");
    write.skip(0);
    reader_.expect_payload_of(write);
}

void Connection::describe(ConnectionState& state) const {
    GPUNBD_ASSERT(quiesced_ == Quiesced::yes && quiet(),
                  "a connection is described while it is quiet");
    storage::store_fence();  // for the part of a WRITE that has not been acknowledged
    RequestReader::Unread unread = reader_.unread();
    state.negotiated = negotiated_;
    state.half_write = half_write_;
    state.discarded = unread.discarded;
    state.received = std::move(unread.bytes);
    accounting_.describe(state);
}

void Connection::continue_from(const ConnectionState& state) {
    GPUNBD_ASSERT(export_ != nullptr && operations_.empty(),
                  "a connection is continued before its first request here");
    accounting_.continue_from(state);
    requests_at_flush_ = state.requests;
    reader_.expect_discarded(state.discarded);
    half_write_ = state.half_write;
    quiesced_ = Quiesced::resuming;
}

void Connection::leave() noexcept {
    GPUNBD_ASSERT(operations_.empty() && send_queue_.empty(),
                  "nothing of a client is in flight when another process continues");
    closed_ = true;
    transport_.leave();
    wakeup_.resume();
}

void Connection::flush_all() {
    do {
        send_queue_.sequencer().resume_entering();
        flush();
    } while (send_queue_.sequencer().can_enter());
}

void Connection::flush() {
    accounting_.publish();
    if (out_of_memory_) close(no_memory);
    if (closed_) return;
    // Replies that are queued behind a full socket wait as well, even if it took all earlier ones.
    if (send_wait_.pending() && !send_queue_.nothing_to_send()) {
        progress_.update_stall(accounting_.unsent_since(), false, true);
    }
    if (!send_wait_.pending() && !send_queue_.nothing_to_send()) {
        // A reply to a WRITE guarantees that its payload is visible to all clients.
        storage::store_fence();
        std::array<iovec, max_pieces> pieces;
        const bool was_full = send_queue_.full();
        storage::Counter& unsent_since = accounting_.unsent_since();
        bool progress = false;
        while (!send_queue_.nothing_to_send()) {
            if (send_left_ <= 0) {  // the turn is over
                progress_.update_stall(unsent_since, progress, true);
                wakeup_.flush_soon();
                break;
            }
            const Transport::Result done = transport_.send(
                {pieces.data(), send_queue_.gather(pieces, static_cast<std::size_t>(send_left_))});
            if (done.ended) {
                close(done.error == EPIPE || done.error == ECONNRESET
                          ? "the client hung up"
                          : fmt::format("sending failed: {}", std::strerror(done.error)));
                return;
            }
            progress_.moved(done.bytes);
            progress = progress || done.bytes != 0;
            send_left_ -= static_cast<std::int64_t>(done.bytes);
            send_queue_.sent(done.bytes);
            if (done.wait != Transport::Wait::none) {
                wait_to_send();
                progress_.update_stall(unsent_since, progress, !send_queue_.nothing_to_send());
                break;
            }
        }
        accounting_.publish_sent(send_queue_.read_sent());
        if (send_queue_.nothing_to_send() && unsent_since.value() != 0) [[unlikely]]
            progress_.update_stall(unsent_since, true, false);
        if (was_full && !send_queue_.full()) wakeup_.resume();
        if (accounting_.requests() - requests_at_flush_ == 1 && operations_.empty() &&
            !admission_.holding()) {
            worker_.scheduler.expect_next_soon();
        }
        requests_at_flush_ = accounting_.requests();
        if (send_queue_.empty()) send_queue_.free_memory();
    }
    if (hang_up_ != nullptr) close(hang_up_);
    if (end_of_requests_ || quiesced_ == Quiesced::resuming) wakeup_.resume();
}

// For callers where an exception would end the worker.
void Connection::flush_or_close() noexcept {
    try {
        flush();
    } catch (const std::exception&) {
        close(no_memory);
    }
}

void Connection::wait_to_send() {
    send_wait_.begin(transport_, Transport::Wait::writable,
                     [weak = weak_from_this()](boost::system::error_code error) {
                         const auto self = weak.lock();
                         if (!self) return;
                         self->send_wait_.ended();
                         if (!error) self->wakeup_.flush_now();
                     });
}

void Connection::run() noexcept {
    const auto self = shared_from_this();
    Scheduler& scheduler = worker_.scheduler;
    const std::int64_t turn = scheduler.turn_of(*this);
    const std::int64_t limit = scheduler.transfer_limit();
    turn_left_ = turn;
    send_left_ = limit;
    staging_.light = scheduler.is_light(*this);
    // A coroutine that is resumed flushes as well.
    if (!wakeup_.resumes() || !send_queue_.nothing_to_send()) flush_or_close();
    if (const auto waiter = wakeup_.take_waiter()) {
        Scheduler::Runnable::unlink();  // what flush() announced is checked now
        waiter.resume();
    }
    scheduler.count(*this, std::max(turn - turn_left_, limit - send_left_));
}

Wakeup::Awaitable Connection::ready(Transport::Wait direction) {
    if (!ready_wait_.pending()) {
        ready_wait_.begin(transport_, direction,
                          [weak = weak_from_this()](boost::system::error_code) {
                              const auto self = weak.lock();
                              if (!self) return;
                              self->ready_wait_.ended();
                              self->wakeup_.socket_ready();
                          });
    }
    return resumed();
}

}  // namespace gpunbd::server
