// A session: one connection, from its handshake to its end. It only moves down:
// negotiating -> serving -> draining -> closed.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "protocol/negotiation.hpp"
#include "server/export_registry.hpp"
#include "server/outbox.hpp"
#include "server/stream.hpp"
#include "server/worker.hpp"

namespace gpunbd::server {

struct SessionLimits {
    std::chrono::seconds handshake{10};
    std::uint64_t in_flight = 64 << 20;  // bytes that this connection may have under way
    std::chrono::seconds farewell{10};   // for answers still to be sent once nothing more is read
};

class Session : public std::enable_shared_from_this<Session> {
 public:
    Session(Worker& worker, Socket socket, const ExportRegistry& exports,
            const SessionLimits& limits);

    // Starts on the worker's thread and keeps the session alive until it is closed.
    static void start(std::shared_ptr<Session> session);

    // Answers what is in flight, refuses what is new, then closes.
    void drain();
    // Closes now. Operations finish as soon as their copies have ended.
    void cut(const std::string& reason);

    // For operations.
    const protocol::Agreement& agreement() const { return agreement_; }
    storage::Volume& volume() { return *export_->volume; }
    storage::Lanes& lanes() { return worker_.lanes(); }
    storage::StagingAccount& staging() { return staging_; }
    Outbox& outbox() { return outbox_; }
    // READs that are not answered yet, in one piece or in chunks. One in one piece that still wants
    // staging memory keeps the next request from being taken: its answer may have to wait for those
    // before it, and they must be able to go without it.
    std::uint32_t unanswered_reads(bool in_one) const { return unanswered_reads_[in_one ? 1 : 0]; }
    void enter_read(const ReadOperation& operation, bool in_one);
    void is_issued(const ReadOperation& operation);
    void leave_read(const ReadOperation& operation, bool in_one);
    // Queues a reply that has no payload.
    void send_header(const protocol::ReplyHeader& header, std::size_t length);
    // The operation's answer is in the outbox, or it is not wanted any more: back to the pool.
    void finish(ReadOperation& operation) { retire(operation, worker_.reads()); }
    void finish(WriteOperation& operation) { retire(operation, worker_.writes()); }
    void finish(ZeroOperation& operation) { retire(operation, worker_.zeroes()); }
    void finish(StatusOperation& operation) { retire(operation, worker_.statuses()); }
    // For the trace: all of the operation's answer is ready.
    void answered(const Operation& operation);
    // One line in the log, but not one for each of a flood.
    void report_failure(const Operation& operation, storage::Status status);
    // Once the turn of the lanes is over, flush().
    void flush_soon();
    // A write has room again, or bytes in flight have become fewer.
    void resume_receiving();
    // The connection cannot be saved: cut() at the next safe point.
    void hang_up(const char* reason);

    // Sends what is in the outbox as far as the socket takes it.
    void flush();

    // For Worker::look_for_stalled().
    bool holds_staging() const { return staging_.reads + staging_.writes != 0; }
    bool has_operations() const { return operations_ != nullptr; }
    // How many looks in a row have found that it neither received nor sent a byte.
    std::uint32_t looks_without_progress();

 private:
    using Clock = std::chrono::steady_clock;
    enum class State : std::uint8_t { negotiating, serving, draining, closed };

    static boost::asio::awaitable<void> run(std::shared_ptr<Session> session);
    boost::asio::awaitable<bool> negotiate();
    boost::asio::awaitable<bool> send_all(std::vector<std::byte> bytes);
    boost::asio::awaitable<void> serve();
    boost::asio::awaitable<void> settle();
    boost::asio::awaitable<void> pause();
    // The one line in the log of a connection.
    void report_end(bool failed);

    // One system call's worth of bytes; false: the connection has ended.
    enum class Received : std::uint8_t { all_asked, less, blocked, ended };
    Received receive(Gulp& gulp);
    // Takes what is in the gulp as far as it goes; false: it is blocked, or no more is to be read.
    bool consume(Gulp& gulp);
    void begin(const protocol::Request& request);
    void execute(const protocol::Command& command);
    void refuse(const protocol::Refusal& refusal);
    void write_received();

    template <typename T>
    T& enlist(Pool<T>& pool, const protocol::Command& command) {
        T& operation = pool.take();
        link(operation, command);
        return operation;
    }
    template <typename T>
    void retire(T& operation, Pool<T>& pool) {
        unlink(operation);
        pool.give_back(operation);
    }
    void link(Operation& operation, const protocol::Command& command);
    void unlink(Operation& operation);
    // May the next request not be taken yet? One is always let through.
    bool over_limit();
    bool reading_is_over() const { return end_of_requests_ || state_ == State::closed; }

    Worker& worker_;
    Stream stream_;
    const ExportRegistry& exports_;
    const SessionLimits limits_;
    State state_ = State::negotiating;
    std::string reason_;  // why it ended

    std::optional<protocol::Negotiation> negotiation_;
    protocol::Agreement agreement_;
    std::shared_ptr<const Export> export_;

    Outbox outbox_{worker_.trace() != nullptr ? &worker_.trace()->sent : nullptr};
    bool waiting_to_send_ = false;
    bool flush_queued_ = false;
    std::uint64_t requests_at_flush_ = 0;
    const char* hang_up_ = nullptr;

    Gulp* first_ = nullptr;  // what came along with the last option
    // Received bytes that are less than a request, kept while the session has no gulp.
    std::array<std::byte, protocol::request_size> rest_;
    std::size_t rest_length_ = 0;
    WriteOperation* writing_ = nullptr;  // whose payload is being received
    std::uint32_t discard_ = 0;          // payload bytes of a refused request
    std::uint32_t last_write_ = 0;       // bytes: tells how much to receive at once
    bool end_of_requests_ = false;

    std::array<std::uint32_t, 2> unanswered_reads_{};  // in chunks, in one piece
    const ReadOperation* issuing_ = nullptr;  // the read in one piece that wants staging memory
    Operation* operations_ = nullptr;         // live ones
    std::uint64_t in_flight_ = 0;             // bytes
    storage::StagingAccount staging_;
    std::uint64_t moved_ = 0;  // bytes received and sent while serving
    std::uint64_t moved_at_look_ = 0;
    std::uint32_t looks_without_progress_ = 0;
    boost::asio::steady_timer resume_;  // cancelled to end pause()
    bool paused_ = false;
    bool resumed_ = false;
    boost::asio::steady_timer deadline_;

    struct {
        std::uint64_t requests = 0;
        std::uint64_t read = 0;     // bytes
        std::uint64_t written = 0;  // bytes
    } counts_;
    Clock::time_point started_ = Clock::now();
    storage::TraceClock::time_point received_at_;  // only with a trace
    Clock::time_point last_report_;
    std::uint64_t unreported_ = 0;
};

}  // namespace gpunbd::server
