// A connection that serves an export: takes requests off its transport, runs their operations and
// sends what they answer. A session is its life; this is its work.
#pragma once

#include <boost/intrusive/list.hpp>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "protocol/negotiation.hpp"
#include "server/connection/admission.hpp"
#include "server/connection/connection_state.hpp"
#include "server/connection/request_reader.hpp"
#include "server/connection/transport.hpp"
#include "server/counters/connection_counters.hpp"
#include "server/counters/request_counters.hpp"
#include "server/exports/export.hpp"
#include "server/operations/operation_context.hpp"
#include "server/worker/wait_memory.hpp"
#include "server/worker/worker_context.hpp"

namespace gpunbd::server {

class Connection final : public OperationContext,
                         public std::enable_shared_from_this<Connection>,
                         private Scheduler::Runnable,
                         private Budget::Waiter {
 public:
    // `peer`: for the log. `max_in_flight`: bytes that its requests may have unanswered.
    Connection(WorkerContext& worker, Socket socket, std::string peer, std::uint64_t max_in_flight,
               std::shared_ptr<ConnectionCounters> counters);
    ~Connection();

    Transport& transport() { return transport_; }

    // From here on it serves; `received` came along with the last option. Opens channels, and
    // throws as Channels::open() does.
    void serve(const protocol::NegotiatedOptions& negotiated, std::shared_ptr<const Export> served,
               std::span<const std::byte> received);
    // Rates that it is held to from now on.
    void limit_rates(RateLimits limits) { admission_.limit_rates(worker_.io, std::move(limits)); }
    // A request waits for its turn under those.
    bool holds_request_back() const { return admission_.holding(); }
    const protocol::ExportInfo& export_info() const { return negotiated_.export_info; }

    // What a round of receiving, starting operations and sending came to.
    enum class Round : std::uint8_t {
        again,    // there is more to take
        yield,    // there is, but others come first
        idle,     // until the transport is readable: ready()
        blocked,  // until resumed()
        over,     // no more requests come: DISC, the end, or it was closed
    };
    Round round();
    // Others had their turn: the next rounds have a whole budget again.
    void begin_turn();
    // For the one coroutine that awaits it.
    struct Resumption {
        Connection& connection;
        bool at_once;
        bool await_ready() const noexcept { return at_once; }
        void await_suspend(std::coroutine_handle<> waiter) const noexcept {
            connection.waiter_ = waiter;
        }
        void await_resume() const noexcept { connection.resumed_ = false; }
    };
    // Completes once something that it was blocked by may be over; at once if that has happened
    // since the last round began.
    Resumption resumed() { return {*this, resumed_}; }
    // That, or once the transport is ready in that direction. Nobody waits for the other one.
    Resumption ready(Transport::Wait direction);
    // Completes once the others that have more to do had their turns.
    Resumption next_turn();
    // Before what takes as long as hundreds of requests.
    Resumption long_turn();

    // No request is taken and nothing is received until go_on(); a WRITE whose payload has come in
    // part stops there. What waits for its rates goes now.
    void pause();
    void go_on();
    // While it pauses: everything has been answered, and every byte of that has left.
    bool quiet() const { return operations_.empty() && (closed_ || send_queue_.empty()); }
    std::uint64_t moved() const { return moved_; }  // bytes received and sent
    // While it is quiet: can another process go on with it, and from where?
    bool can_move() { return pausing_ && !reading_is_over() && quiet() && !transport_.in_tls(); }
    void describe(ConnectionState& state) const;
    // After serve(): goes on from there.
    void continue_from(const ConnectionState& state);
    // Another process has the socket.
    void leave() noexcept;

    // Every request from now on is refused; once nothing is in flight the client is told the end.
    void drain();
    // No request is taken any more, nor the rest of a payload.
    void stop_taking();
    // Sends what is queued, as far as the transport takes it. true: nothing is in flight and
    // everything has been sent, or it was closed; else resumed() tells when to look again.
    bool settle();
    static constexpr const char* no_memory = "no memory";  // short: a string that takes none
    // Now. Operations finish as soon as their copies have ended.
    void close(std::string reason) noexcept;
    bool closed() const { return closed_; }
    bool has_operations() const { return !operations_.empty(); }
    // Of the export that it serves, if it does so yet.
    bool contents_outlive_server() const { return export_ && export_->contents_outlive_server(); }

    // Why it ends; empty: the client wished so.
    const std::string& reason() const { return reason_; }
    const ConnectionCounters& counters() const { return *counters_; }

    // While others wait for staging memory: does it hold some, and how many looks in a row have
    // found that it moved fewer than `min_progress` bytes?
    bool holds_staging() const { return staging_.reads + staging_.writes != 0; }
    std::uint32_t looks_without_progress(std::uint64_t min_progress);

    // OperationContext
    storage::TransferContext transfer_context() override {
        return {*export_->volume, worker_.channels, staging_};
    }
    void finish(Operation& operation) override;
    void lose_half_write() override;
    void answered(Operation& operation) override;
    void report_failure(const Operation& operation, storage::Status status) override;
    void flush_soon() override { worker_.scheduler.run_soon(*this); }
    void resume_receiving() noexcept override;
    void hang_up(const char* reason) override;
    void run_out_of_memory() noexcept override;

 private:
    using Clock = std::chrono::steady_clock;
    // What taking requests came to; as Round, but that `hungry` has no whole request left.
    enum class Taken : std::uint8_t { hungry, yield, blocked, over };

    void run() noexcept override;
    void wake() noexcept;
    void budget_has_room() override { resume_receiving(); }

    Taken take_requests();
    // Each false: it has to wait.
    bool take(const protocol::Request& request);
    bool take_held();
    bool admit(const protocol::Request& request, const protocol::Validated& validated);
    void act_on(const protocol::Request& request, const protocol::Validated& validated);
    void execute(const protocol::Command& command);
    void refuse(const protocol::Refusal& refusal);
    void start(Operation& operation, const protocol::Command& command);
    void abandoned(const Operation& operation);
    void tell_what_was_asked();
    // How long it took, and where it was, for who asks; once it is answered.
    void look_closer(const Operation& operation);
    void payload_complete(WriteOperation& write);
    void take_up_again();
    RequestReader::Received::Amount receive();
    bool may_take_request();
    bool reading_is_over() const { return end_of_requests_ || closed_; }
    void flush();
    void flush_or_close() noexcept;
    void wait_to_send();

    WorkerContext& worker_;
    Transport transport_;
    const std::string peer_;
    protocol::NegotiatedOptions negotiated_;
    std::shared_ptr<const Export> export_;
    storage::ClientAccount staging_;
    std::uint64_t page_size_ = 1;  // bytes, of the export

    RequestReader reader_;
    Admission admission_;
    boost::intrusive::list<Operation, boost::intrusive::constant_time_size<false>> operations_;
    bool end_of_requests_ = false;
    bool draining_ = false;
    bool pausing_ = false;
    bool going_on_ = false;  // once half a write has been written
    bool closed_ = false;
    bool out_of_memory_ = false;
    const std::shared_ptr<WaitMemory> memory_to_be_ready_ = std::make_shared<WaitMemory>();
    const std::shared_ptr<WaitMemory> memory_to_send_ = std::make_shared<WaitMemory>();
    bool waiting_to_be_ready_ = false;
    bool waiting_to_send_ = false;
    const char* hang_up_ = nullptr;
    std::string reason_;
    std::coroutine_handle<> waiter_;
    bool resumed_ = false;

    ConnectionState::HalfWrite half_write_;    // while it pauses
    const Operation* half_written_ = nullptr;  // until what had come of it is in its place

    std::int64_t turn_left_ = 0;  // bytes received, to be sent, or of work
    std::uint64_t requests_at_flush_ = 0;
    std::uint64_t moved_ = 0;  // bytes received and sent
    std::uint64_t moved_at_look_ = 0;
    std::uint32_t looks_without_progress_ = 0;
    struct Asked {
        std::uint64_t requests = 0;
        std::uint64_t in_flight = 0;
        std::uint64_t read = 0;     // bytes
        std::uint64_t written = 0;  // bytes
    };
    // Gathered, since a store for others to see costs each request more: they see it when answers
    // are sent.
    struct Tally {
        std::uint64_t begun = 0;
        std::uint64_t answered = 0;
        std::uint64_t bytes = 0;  // that those were about
    };
    Tally& tally(protocol::CommandType type) { return tallies_[static_cast<std::size_t>(type)]; }
    std::array<Tally, ExportCounters::types - 1> tallies_;  // not told yet, by type
    Asked asked_;                                           // told, but for the requests
    const std::shared_ptr<ConnectionCounters> counters_;
    std::shared_ptr<ExportCounters> of_export_;  // once it serves
    storage::TraceClock::time_point received_at_;
    storage::TraceClock::time_point untimed_;  // what says so: not_timed, or only_looked_at
    bool first_received_ = false;              // no request of what came then has been started yet
    std::uint32_t until_timed_ = 1;            // requests
    Clock::time_point last_report_;
    std::uint64_t unreported_ = 0;
};

}  // namespace gpunbd::server
