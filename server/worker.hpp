// A worker: one thread, one io_context, its lanes and its pools. A connection lives on one worker
// for its whole life, so that nothing on a request's way takes a lock or changes threads.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "server/gulp.hpp"
#include "server/pool.hpp"
#include "server/read_operation.hpp"
#include "server/status_operation.hpp"
#include "server/trace.hpp"
#include "server/write_operation.hpp"
#include "server/zero_operation.hpp"
#include "storage/lanes.hpp"

namespace gpunbd::server {

class Session;

class Worker {
 public:
    // How long a client may neither send nor receive while it holds memory that others wait for.
    static constexpr std::chrono::milliseconds patience{10'000};

    // `in_flight`: bytes that all its connections together may have under way. `trace`: keep one.
    Worker(storage::LaneOptions options, std::uint64_t in_flight, bool trace,
           std::chrono::milliseconds stall_limit = patience);
    ~Worker();

    boost::asio::io_context& io() { return io_; }
    // Runs until stop(); called once, on the worker's own thread.
    void run();
    void stop();

    // What follows is for the worker's thread alone.
    storage::Lanes& lanes() { return lanes_; }
    Trace* trace() { return trace_.get(); }  // null: none is kept
    Pool<Gulp>& gulps() { return gulps_; }
    Pool<ReadOperation>& reads() { return reads_; }
    Pool<WriteOperation>& writes() { return writes_; }
    Pool<ZeroOperation>& zeroes() { return zeroes_; }
    Pool<StatusOperation>& statuses() { return statuses_; }

    void enter(std::shared_ptr<Session> session);
    void leave(const std::shared_ptr<Session>& session);
    void drain_sessions();
    void cut_sessions();

    // Bytes that requests hold, from their start to their answer.
    void charge(std::uint64_t bytes) { in_flight_ += bytes; }
    void discharge(std::uint64_t bytes);
    bool over_limit() const { return in_flight_ > most_in_flight_; }
    // The session is told once the worker is no longer over its limit.
    void wait_for_room(Session& session);

    // A client that has one request under way at a time was just answered: its next one is likely
    // to come before the worker could have gone to sleep and been woken.
    void expect_next_soon();

    // A lone request's copy need not wait for the end of the turn: there are no others to gather.
    void submit_if_alone();

    // The session has answers that were made during a turn of the lanes.
    void flush_after_turn(Session& session);

    // Connections that live here or are on their way; any thread.
    std::atomic<std::uint32_t> connections{0};

 private:
    void wait_for_events();
    // Staging memory is lent to clients, who fill or take it at their own pace. One that has
    // stopped must not keep it from others for ever: it is cut once it has not moved for the stall
    // limit, while a client that holds none waits. Runs only while anybody waits for staging
    // memory.
    void look_for_stalled();
    void look_again_later();

    boost::asio::io_context io_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    std::unique_ptr<Trace> trace_;
    storage::Lanes lanes_;
    Pool<Gulp> gulps_;
    Pool<ReadOperation> reads_;
    Pool<WriteOperation> writes_;
    Pool<ZeroOperation> zeroes_;
    Pool<StatusOperation> statuses_;
    std::set<std::shared_ptr<Session>> sessions_;
    const std::uint64_t most_in_flight_;
    std::uint64_t in_flight_ = 0;
    std::vector<std::shared_ptr<Session>> without_room_;
    std::chrono::steady_clock::time_point spin_until_;
    const std::chrono::milliseconds stall_limit_;
    boost::asio::steady_timer look_timer_;
    bool looking_ = false;
    std::vector<std::shared_ptr<Session>> to_flush_;
    std::vector<std::shared_ptr<Session>> flushing_;
};

}  // namespace gpunbd::server
