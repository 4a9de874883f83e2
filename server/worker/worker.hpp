// A worker: one thread, one event loop, its channels and its pools. A connection lives on one
// worker for its whole life, so that nothing on a request's way takes a lock or changes threads.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "server/connection/session.hpp"
#include "server/worker/wait_memory.hpp"
#include "server/worker/worker_context.hpp"

namespace gpunbd::server {

class Worker {
 public:
    // How long a client may neither send nor receive while it holds memory that others wait for.
    static constexpr std::chrono::milliseconds patience{10'000};

    // `max_memory`: bytes that the requests of all its connections may hold. `trace`: keep one.
    Worker(storage::ChannelOptions options, std::uint64_t max_memory, bool trace,
           std::chrono::milliseconds stall_limit = patience);

    // Runs until stop(); called once, on the worker's own thread.
    void run();
    // Any thread, as all that follows.
    void stop();
    // Serves a connected socket, and closes it at the end. `exports` outlives the worker.
    // `slot`: its place among all connections; null: places are not counted. `tls`: null: off.
    void serve(int fd, Peer peer, const ExportRegistry& exports, const SessionLimits& limits,
               std::shared_ptr<Slot> slot = nullptr,
               std::shared_ptr<const TlsContext> tls = nullptr,
               std::unique_ptr<const ConnectionState> earlier = nullptr);
    // Ends the connection that ConnectionCounters has this id of, if it lives here.
    void end_connection(std::uint64_t id);
    // Ends a handshake that this worker serves, for another.
    void evict(std::shared_ptr<Slot> slot);
    // The configuration has been read again.
    void look_at_access();
    void drain_sessions();
    // For an export whose contents outlive the server: Session has each of these.
    void pause_sessions();
    void let_sessions_go_on();
    void let_unquiet_sessions_go_on();
    void cut_unquiet_sessions(const char* reason);
    void leave_sessions();
    // Sessions that are not quiet, and how many bytes they have moved so far.
    struct Unquiet {
        std::size_t sessions = 0;
        std::uint64_t moved = 0;
    };
    // On the worker's thread: who is not quiet; what can move away.
    void count_unquiet(std::function<void(Unquiet)> told);
    void move_sessions(std::function<void(std::vector<std::unique_ptr<Session::Moving>>)> told);
    void cut_sessions();
    // Connections that live here or are on their way.
    std::uint32_t connections() const { return connections_; }
    const WorkerCounters& counters() const { return context_.counters; }
    const storage::Channels& channels() const { return context_.channels; }  // for seen()
    const Trace* trace() const { return context_.trace.get(); }              // null: none is kept
    // Calls on the worker's thread, with what its connections work with.
    template <typename Call>
    void post(Call call) {
        boost::asio::post(context_.io, [this, call = std::move(call)] { call(context_); });
    }

 private:
    void start(int fd, Peer peer, const ExportRegistry& exports, const SessionLimits& limits,
               std::shared_ptr<Slot> slot, std::shared_ptr<const TlsContext> tls,
               std::unique_ptr<const ConnectionState> earlier);
    void leave(const std::shared_ptr<Session>& session) noexcept;
    void round();
    template <typename Call>
    void tell_sessions(Call call);
    // Staging memory is lent to clients, who fill or take it at their own pace. One that has
    // stopped, or nearly so, must not keep it from others for ever: it is cut once it has not moved
    // for the stall limit, while a client that holds none waits. Runs only while anybody waits for
    // staging memory.
    void look_for_stalled();
    void look_again_later();

    WorkerContext context_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    std::set<std::shared_ptr<Session>> sessions_;
    std::set<std::shared_ptr<Session>> finishing_;  // at most copies of theirs are under way
    std::atomic<std::uint32_t> connections_{0};
    const std::chrono::milliseconds stall_limit_;
    boost::asio::steady_timer look_timer_;
    const std::shared_ptr<WaitMemory> memory_to_look_ = std::make_shared<WaitMemory>();
    bool looking_ = false;
};

}  // namespace gpunbd::server
