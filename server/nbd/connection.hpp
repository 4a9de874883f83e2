#pragma once

#include <algorithm>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "protocol/negotiation.hpp"
#include "server/base/wait_memory.hpp"
#include "server/counters/worker_counters.hpp"
#include "server/exports/export.hpp"
#include "server/nbd/admission.hpp"
#include "server/nbd/connection_state.hpp"
#include "server/nbd/operation_context.hpp"
#include "server/nbd/request_reader.hpp"
#include "server/nbd/worker_context.hpp"
#include "server/net/transport/transport.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

// One wait for a socket at a time. Its handler is stored in memory of its own.
class SocketWait {
 public:
    bool pending() const { return pending_; }
    // `handler` calls ended() first. It is called with an error if the socket is closed.
    template <typename Handler>
    void begin(Transport& transport, Transport::Wait direction, Handler handler) {
        GPUNBD_ASSERT(!pending_, "one wait for a socket is in progress at a time");
        transport.wait(direction, within(memory_, std::move(handler)));
        pending_ = true;
    }
    void ended() {
        GPUNBD_ASSERT(pending_, "a wait ends once");
        pending_ = false;
    }

 private:
    const std::shared_ptr<WaitMemory> memory_ = std::make_shared<WaitMemory>();
    bool pending_ = false;
};

// Measures the data that a connection transfers, for the limit on clients that hold memory and
// transfer too little, and for the log.
class ProgressMeter {
 public:
    void moved(std::size_t bytes) { moved_ += bytes; }
    std::uint64_t moved() const { return moved_; }  // bytes received and sent
    // The number of calls in a row that found fewer than `min` bytes moved since the one before.
    std::uint32_t checks_without(std::uint64_t min) {
        const bool progress = moved_ - std::exchange(moved_at_check_, moved_) >= min;
        return checks_without_ = progress ? 0 : checks_without_ + 1;
    }

    // The socket is full, or has accepted everything. `since`: ConnectionCounters::unsent_since.
    void update_stall(storage::Counter& since, bool progress, bool unsent) {
        if (since.value() != 0 && progress) {
            longest_stall_ = std::max(longest_stall_, Stall::now() - since.value());
            since.set(0);
        }
        if (unsent && since.value() == 0) since.set(Stall::now());
    }
    // The longest time for which the client did not read waiting replies.
    std::chrono::nanoseconds longest_stall(const storage::Counter& since) const {
        const std::uint64_t last = since.value() == 0 ? 0 : Stall::now() - since.value();
        return std::chrono::nanoseconds(std::max(longest_stall_, last));
    }

 private:
    std::uint64_t moved_ = 0;
    std::uint64_t moved_at_check_ = 0;
    std::uint32_t checks_without_ = 0;
    std::uint64_t longest_stall_ = 0;  // ns, of the ended stalls
};

// A connection that serves an export: takes requests off its transport, runs their operations and
// sends the replies. Session controls its life; this class does its work.
//
//   connection.cpp           its life: serving, draining, closing; sending the queue; stopping
//                            between requests, for another process to continue
//   connection_requests.cpp  rounds: receiving, taking requests, executing commands

class Connection final : public OperationContext,
                         public std::enable_shared_from_this<Connection>,
                         private Scheduler::Runnable,
                         private Budget::Waiter {
 public:
    static constexpr const char* no_memory =
        "no memory";  // short, so that a string of it allocates nothing

    static constexpr const char* client_disconnected = "the client disconnected";

    // `peer`: for the log. `max_in_flight`: bytes that its unanswered requests may have.
    Connection(WorkerContext& worker, Socket socket, std::string peer, std::uint64_t max_in_flight,
               std::shared_ptr<ConnectionCounters> counters);
    ~Connection();

    Transport& transport() { return transport_; }

    // Starts to serve. `received` was received with the last option. `related`: the export of
    // MetaContext::dirty, or null. Opens channels, and throws as Channels::open() does.
    void serve(const protocol::NegotiatedOptions& negotiated, std::shared_ptr<const Export> served,
               std::span<const std::byte> received,
               std::shared_ptr<const Export> related = nullptr);
    void limit_rates(RateLimits limits) { admission_.limit_rates(worker_.io, std::move(limits)); }
    // Requests beyond the end of an export that has shrunk are refused. The size never grows for a
    // client.
    void follow_size() {
        std::uint64_t& size = negotiated_.export_info.size;
        size = std::min(size, export_->volume->size());
    }
    // The export has been renamed. Its counters have been as well.
    void follow_name(const std::string& name) {
        negotiated_.export_info.name = name;
        failure_log_.serve(name);
    }
    // A request waits for the rates.
    bool holds_request_back() const { return admission_.holding(); }
    const protocol::ExportInfo& export_info() const { return negotiated_.export_info; }

    // The result of one round of receiving, starting operations and sending.
    enum class Round : std::uint8_t {
        again,    // there are more requests to take
        yield,    // likewise, but other connections come first
        idle,     // wait until the transport is readable: ready()
        blocked,  // wait for resumed()
        over,     // no more requests come: DISC, end of stream, or closed
    };
    Round round();
    // Awaitables of the one coroutine that runs the connection; see Wakeup.
    Wakeup::Awaitable resumed() { return wakeup_.resumed(); }
    // Also completes once the transport is ready in that direction. Only one direction is waited
    // for at a time.
    Wakeup::Awaitable ready(Transport::Wait direction);
    Wakeup::Awaitable next_turn() { return wakeup_.next_turn(); }
    Wakeup::Awaitable long_turn() { return wakeup_.long_turn(); }

    // Stops taking requests and receiving until resume(); a WRITE stops in the middle of its
    // payload. A request that waits for the rates executes now.
    void quiesce();
    void resume();
    // While quiesced: all requests have been answered and all replies sent.
    bool quiet() const { return operations_.empty() && (closed_ || send_queue_.empty()); }
    // The client has not read all replies. A connection without them that is not quiet waits for a
    // device.
    bool has_unsent_replies() const { return !closed_ && !send_queue_.empty(); }
    const ProgressMeter& progress() const { return progress_; }
    // While quiet: another process can continue from describe(). It accepts no WRITE beyond the
    // end, which the client may have begun before the export shrank.
    bool can_move() const {
        return quiesced_ != Quiesced::no && !reading_is_over() && quiet() && !transport_.in_tls() &&
               lies_in_export(half_write_);
    }
    void describe(ConnectionState& state) const;
    // After serve(): continues where another process has stopped.
    void continue_from(const ConnectionState& state);
    // Another process continues with the socket.
    void leave() noexcept;

    // Refuses every request from now on. Stops receiving once nothing is in flight.
    void drain();
    // Accepts no more requests and no further payload.
    void stop_taking();
    // Sends as much of the queue as the transport accepts. Returns true if nothing is in flight and
    // everything has been sent, or the connection is closed. Otherwise call it again when resumed()
    // completes.
    bool settle();
    // Closes now. Operations end as soon as their copies have.
    void close(std::string reason) noexcept;
    bool closed() const { return closed_; }
    bool has_operations() const { return !operations_.empty(); }
    // false before serve().
    bool contents_outlive_server() const { return export_ && export_->contents_outlive_server(); }

    // Why the connection ended.
    const std::string& reason() const { return reason_; }
    // The client has sent DISC, for no other reason than that the connection ends.
    bool has_disconnected() const { return reason_ == client_disconnected; }
    const ConnectionCounters& counters() const { return accounting_.counters(); }
    std::chrono::nanoseconds longest_stall() const {
        return progress_.longest_stall(counters().unsent_since);
    }

    // For the worker's check for clients that hold staging memory without progress.
    bool holds_staging() const { return staging_.reads + staging_.writes != 0; }
    std::uint32_t checks_without_progress(std::uint64_t min) {
        return progress_.checks_without(min);
    }

 private:
    // Like Round; `hungry`: no complete request is left.
    enum class RoundResult : std::uint8_t { hungry, yield, blocked, over };
    enum class Quiesced : std::uint8_t {
        no,
        yes,
        resuming
    };  // resuming: until half_written_ has ended

    void run() noexcept override;
    void budget_has_room() override { wakeup_.resume(); }

    RequestReader::Received::Amount receive();
    RoundResult take_requests();
    // false: the request still waits for the rates.
    bool take_held();
    void execute(const protocol::Request& request, const protocol::Validated& validated);
    // A request that was held back. The export may have shrunk since it was validated.
    void execute_held(const protocol::Validated& validated);
    // `range`: a command, or a part of one.
    bool lies_in_export(const auto& range) const {
        return protocol::lies_in(negotiated_.export_info.size, range.offset, range.length);
    }
    void refuse(const protocol::Refusal& refusal);
    void start(Operation& operation, const protocol::Command& command, const CommandCost& cost);
    void ended(Operation& operation) override;
    const storage::Volume* related_volume() const override {
        return related_ ? related_->volume.get() : nullptr;
    }
    bool take_buffer_memory(std::uint64_t bytes) override { return admission_.buffer(bytes); }
    void return_buffer_memory(std::uint64_t bytes) override { admission_.unbuffer(bytes); }
    void payload_complete(WriteOperation& write);
    bool reading_is_over() const { return end_of_requests_ || closed_; }

    void flush();
    // Also what begins because of that.
    void flush_all();
    void flush_or_close() noexcept;
    void wait_to_send();

    // Between two parts of the payload that is being received, if there is one.
    void pause_write();
    void take_up_half_write();

    WorkerContext& worker_;
    Transport transport_;
    protocol::NegotiatedOptions negotiated_;
    std::shared_ptr<const Export> export_;  // from serve() on
    std::shared_ptr<const Export> related_;
    std::uint64_t page_size_ = 1;  // bytes, of the export
    storage::ClientAccount staging_;
    RequestReader reader_;
    Admission admission_;
    boost::intrusive::list<Operation, boost::intrusive::constant_time_size<false>> operations_;
    bool draining_ = false;
    bool closed_ = false;
    Quiesced quiesced_ = Quiesced::no;
    std::string reason_;
    SocketWait ready_wait_;
    SocketWait send_wait_;
    ConnectionState::HalfWrite half_write_;     // while quiesced
    const Operation* half_written_ = nullptr;   // writes the part that had arrived
    std::int64_t turn_left_ = Scheduler::turn;  // bytes received, to be sent, or of work
    std::int64_t send_left_ = Scheduler::turn;  // bytes, of this turn
    std::uint64_t requests_at_flush_ = 0;
    ProgressMeter progress_;
};

}  // namespace gpunbd::server
