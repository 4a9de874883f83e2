#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "server/nbd/connection.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t max_pieces = 512;  // of one send; IOV_MAX is 1024
constexpr std::size_t max_flush =
    1024 * 1024;  // bytes sent before other connections get their turn

}  // namespace

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
        for (std::size_t flushed = 0; !send_queue_.nothing_to_send();) {
            const Transport::Result done =
                transport_.send({pieces.data(), send_queue_.gather(pieces)});
            if (done.ended) {
                close(done.error == EPIPE || done.error == ECONNRESET
                          ? "the client hung up"
                          : fmt::format("sending failed: {}", std::strerror(done.error)));
                return;
            }
            progress_.moved(done.bytes);
            flushed += done.bytes;
            send_queue_.sent(done.bytes);
            if (done.wait != Transport::Wait::none || flushed >= max_flush) {
                wait_to_send();
                progress_.update_stall(unsent_since, flushed != 0, !send_queue_.nothing_to_send());
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
                         if (!error) self->flush_or_close();
                     });
}

void Connection::run() noexcept {
    flush_or_close();
    Scheduler::Runnable::unlink();  // what flush() announced is checked next
    resume_waiter();
}

void Connection::resume_waiter() noexcept {
    const auto self = shared_from_this();
    if (const auto waiter = wakeup_.take_waiter()) waiter.resume();
}

Wakeup::Awaitable Connection::ready(Transport::Wait direction) {
    if (!ready_wait_.pending()) {
        ready_wait_.begin(transport_, direction,
                          [weak = weak_from_this()](boost::system::error_code) {
                              const auto self = weak.lock();
                              if (!self) return;
                              self->ready_wait_.ended();
                              self->wakeup_.set();
                              self->resume_waiter();
                          });
    }
    return resumed();
}

}  // namespace gpunbd::server
