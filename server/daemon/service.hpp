#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::server {

// Calls a function at an interval. resume() restarts it after a round that has thrown, or that
// could not be armed for lack of memory.
class Poll {
 public:
    using Round = std::function<bool()>;  // returns false to stop
    // `io` must outlive this object.
    Poll(boost::asio::io_context& io, std::chrono::microseconds interval, Round round);

    // The first round starts after one interval.
    void start();
    // Arms the timer, unless it is armed, start() was not called, or the last round has run.
    void resume();
    void stop();

 private:
    void arm();

    boost::asio::steady_timer timer_;
    const std::chrono::microseconds interval_;
    const Round round_;
    bool active_ = false;
    bool armed_ = false;
};

// What services request of the server as a whole, on its thread.
class ServerControl {
 public:
    // Termination was requested: the server drains, once the machine does not use its exports.
    virtual void end() = 0;
    // It was requested again.
    virtual void end_now() = 0;
    // This machine does not swap to the server any more.
    virtual void end_after_swapoff() = 0;
    virtual void drain() = 0;
    // Whether the end waits for something other than a connection.
    virtual bool end_is_held() const = 0;
    virtual void reload() = 0;
    virtual void log_trace() = 0;
    virtual void child_exited() = 0;

    // The steps of an upgrade. In the predecessor:
    virtual void hand_over() = 0;
    virtual void yield() = 0;        // the successor is about to serve
    virtual void handed_over() = 0;  // it serves
    virtual void resume() = 0;       // it does not; serving continues here
    // In the successor, once it serves. Nothing may change the contents before.
    virtual void taken_over() = 0;

 protected:
    ~ServerControl() = default;
};

// One part of the server, and the list of all of them. All calls come from the main thread.
class Service {
 public:
    using Problems = std::vector<std::string>;
    using Commit = std::function<void()>;  // may be empty

    virtual ~Service() = default;
    // Before any device memory is allocated: acquires resources that another process may use or
    // that may be misconfigured. Throws std::runtime_error, which ends the start.
    virtual void open() {}
    // Called when the exports exist. Throws std::runtime_error, which ends the start.
    virtual void start() {}
    // Checks new options. Adds to `problems` or throws if they cannot be applied; the server then
    // keeps its options. Otherwise the result applies them, once the new exports exist.
    virtual Commit reload(const config::Options& next, Problems& problems);
    // Stops new work: the server ends once its connections have ended.
    virtual void drain() {}
    // As drain(), but a successor serves the clients.
    virtual void hand_over() {}
    // A hand-over has failed, or an exception has ended the event loop: re-arms timers and waits,
    // unless they are armed.
    virtual void resume() {}
    // Ends threads. May be called twice.
    virtual void stop() {}
};

// Services open and start in the order of the list. They drain, hand over, stop, and are destroyed
// in the reverse order; all have stopped before the first is destroyed.
class ServiceList {
 public:
    ServiceList() = default;
    ~ServiceList();
    ServiceList(const ServiceList&) = delete;
    ServiceList& operator=(const ServiceList&) = delete;

    template <typename S, typename... Arguments>
    S& add(Arguments&&... arguments) {
        auto service = std::make_unique<S>(std::forward<Arguments>(arguments)...);
        S& added = *service;
        services_.push_back(std::move(service));
        return added;
    }

    void open();
    void start();
    Service::Commit reload(const config::Options& next, Service::Problems& problems);
    void drain();
    void hand_over();
    void resume();
    void stop();

 private:
    std::vector<std::unique_ptr<Service>> services_;
};

}  // namespace gpunbd::server
