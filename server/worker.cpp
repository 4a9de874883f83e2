#include "server/worker.hpp"

#include <utility>

#include "server/session.hpp"

namespace gpunbd::server {

namespace {

constexpr auto spin = std::chrono::microseconds(50);
constexpr int quiet_turns = 8;  // of the lanes, for one look at the sockets
constexpr std::uint32_t looks_per_limit = 10;

}  // namespace

Worker::Worker(storage::LaneOptions options, std::uint64_t in_flight, bool trace,
               std::chrono::milliseconds stall_limit)
    : io_(1),
      work_(boost::asio::make_work_guard(io_)),
      trace_(trace ? std::make_unique<Trace>() : nullptr),
      lanes_([&] {
          options.trace = trace ? &trace_->lanes : nullptr;
          return options;
      }()),
      most_in_flight_(in_flight),
      stall_limit_(stall_limit),
      look_timer_(io_) {}

Worker::~Worker() = default;

// While copies are queued or in flight the lanes are polled between turns of the event loop; with
// none, the worker blocks in the event loop and costs nothing.
void Worker::run() {
    while (!io_.stopped()) {
        int turns = 1;
        if (lanes_.busy()) {
            // With nothing to do for sockets, a look at the lanes costs far less than one at them.
            if (io_.poll() == 0) turns = quiet_turns;
        } else {
            wait_for_events();
            // Gathers what other clients want into the same submission.
            if (lanes_.busy() && connections > 1) io_.poll();
        }
        for (; turns != 0 && lanes_.busy() && to_flush_.empty(); --turns) lanes_.turn();
        flushing_.swap(to_flush_);
        for (const auto& session : flushing_) session->flush();
        flushing_.clear();
        if (!looking_ && lanes_.waited_for()) look_again_later();
    }
}

void Worker::look_again_later() {
    looking_ = true;
    look_timer_.expires_after(stall_limit_ / looks_per_limit);
    look_timer_.async_wait([this](boost::system::error_code error) {
        looking_ = false;
        if (!error) look_for_stalled();
    });
}

void Worker::look_for_stalled() {
    if (!lanes_.waited_for()) return;
    bool somebody_starves = false;
    std::vector<std::shared_ptr<Session>> stalled;
    for (const auto& session : sessions_) {
        const std::uint32_t looks = session->looks_without_progress();
        if (looks == 0) continue;
        if (!session->holds_staging()) {
            somebody_starves = somebody_starves || session->has_operations();
        } else if (looks >= looks_per_limit) {
            stalled.push_back(session);
        }
    }
    if (!somebody_starves) return;
    for (const auto& session : stalled) {
        session->cut("it held memory that others wait for, and neither sent nor received");
    }
}

void Worker::submit_if_alone() {
    if (connections == 1) lanes_.turn();
}

void Worker::expect_next_soon() { spin_until_ = std::chrono::steady_clock::now() + spin; }

void Worker::wait_for_events() {
    while (spin_until_ != std::chrono::steady_clock::time_point{}) {
        if (io_.poll_one() != 0) return;
        if (std::chrono::steady_clock::now() >= spin_until_) spin_until_ = {};
    }
    io_.run_one();
}

void Worker::stop() {
    work_.reset();
    io_.stop();
}

void Worker::enter(std::shared_ptr<Session> session) { sessions_.insert(std::move(session)); }

void Worker::leave(const std::shared_ptr<Session>& session) {
    sessions_.erase(session);
    --connections;
}

void Worker::drain_sessions() {
    const auto sessions = sessions_;
    for (const auto& session : sessions) session->drain();
}

void Worker::cut_sessions() {
    const auto sessions = sessions_;
    for (const auto& session : sessions) session->cut("the grace period is over");
}

void Worker::discharge(std::uint64_t bytes) {
    in_flight_ -= bytes;
    if (without_room_.empty() || over_limit()) return;
    for (const auto& session : std::exchange(without_room_, {})) session->resume_receiving();
}

void Worker::wait_for_room(Session& session) {
    without_room_.push_back(session.shared_from_this());
}

void Worker::flush_after_turn(Session& session) { to_flush_.push_back(session.shared_from_this()); }

}  // namespace gpunbd::server
