// A worker: one thread with its event loop, channels and pools. A connection lives on one worker
// for its whole life, so that no request takes a lock or changes threads.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "server/base/wait_memory.hpp"
#include "server/nbd/session.hpp"
#include "server/nbd/worker_context.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class Worker {
 public:
    // The longest time that a client may hold memory without progress while others wait for memory.
    static constexpr std::chrono::milliseconds default_stall_limit{10'000};

    // `max_memory`: bytes that the requests of all its connections may hold. `trace`: keep a Trace.
    Worker(storage::ChannelOptions options, std::uint64_t max_memory, bool trace,
           std::chrono::milliseconds stall_limit = default_stall_limit);

    // Runs until stop(). Called once, on the worker's own thread.
    void run();
    // Any thread, as everything below.
    void stop();
    // Serves a connected socket and closes it at the end. `exports` must outlive the worker.
    // `slot`: null: connections are not counted. `tls`: null: off.
    void serve(OwnedFd fd, Peer peer, const ExportRegistry& exports, const SessionLimits& limits,
               std::shared_ptr<Slot> slot = nullptr,
               std::shared_ptr<const TlsContext> tls = nullptr,
               std::unique_ptr<const ConnectionState> earlier = nullptr);
    // Ends the connection with this ConnectionCounters::id, if it lives here. Calls `then` on the
    // worker's thread when there is no such connection.
    void end_connection(std::uint64_t id, std::function<void()> then);
    // Ends a handshake, since another connection gets its slot.
    void evict(std::shared_ptr<Slot> slot);
    // The configuration has been reloaded. Calls `then` on the worker's thread once all sessions
    // follow it and no request that it refuses is still running.
    void check_access(std::function<void()> then);
    void drain_sessions();
    // See Session.
    void quiesce_sessions();
    void resume_sessions();
    void resume_busy_sessions();
    void cut_unread_sessions(const char* reason);
    void leave_sessions();
    // The sessions that are not quiet.
    struct Busy {
        std::size_t sessions = 0;
        std::size_t unread = 0;   // those with replies that the client has not read
        std::uint64_t moved = 0;  // bytes that all of them have received and sent
    };
    // Both call back on the worker's thread.
    void count_busy(std::function<void(Busy)> done);
    void move_sessions(std::function<void(std::vector<std::unique_ptr<Session::Moving>>)> done);
    void cut_sessions();
    // Connections that live here or are about to.
    std::uint32_t connections() const { return connections_; }
    // See Budget::had_burst().
    bool budget_had_burst() const { return context_.budget.had_burst(); }
    const WorkerCounters& counters() const { return context_.counters; }
    void rename_counters(const std::string& from, const std::string& to) {
        context_.counters.rename(from, to);
    }
    const storage::Channels& channels() const { return context_.channels; }  // for snapshot()
    const Trace* trace() const { return context_.trace.get(); }              // may be null
    // Calls on the worker's thread.
    template <typename Call>
    void post(Call call) {
        boost::asio::post(context_.io, [this, call = std::move(call)] { call(context_); });
    }

 private:
    void start(OwnedFd fd, Peer peer, const ExportRegistry& exports, const SessionLimits& limits,
               std::shared_ptr<Slot> slot, std::shared_ptr<const TlsContext> tls,
               std::unique_ptr<const ConnectionState> earlier);
    void leave(const std::shared_ptr<Session>& session) noexcept;
    void round();
    void report_access_checked();
    template <typename Call>
    void for_each_session(Call call);
    // Closes clients that hold staging memory and have transferred too little for the stall limit,
    // while a client without staging memory waits for some. Runs only while a transfer waits for
    // staging memory.
    void cut_stalled();
    void check_stalls_later();

    WorkerContext context_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    std::set<std::shared_ptr<Session>> sessions_;
    std::set<std::shared_ptr<Session>> finishing_;    // closed, but copies of theirs may be running
    std::list<std::function<void()>> access_checks_;  // of check_access()
    std::atomic<std::uint32_t> connections_{0};
    const std::chrono::milliseconds stall_limit_;
    boost::asio::steady_timer stall_timer_;
    const std::shared_ptr<WaitMemory> stall_wait_memory_ = std::make_shared<WaitMemory>();
    bool checking_stalls_ = false;
};

}  // namespace gpunbd::server
