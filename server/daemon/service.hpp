// One part of the server, and the list of all of them. All calls come from the main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::server {

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
