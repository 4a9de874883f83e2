#include "server/daemon/drain.hpp"

#include <algorithm>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr auto drain_interval = std::chrono::milliseconds(20);

}  // namespace

Drain::Drain(ServerContext& context, const WorkerPool& workers, const ServerControl& control)
    : context_(context),
      workers_(workers),
      control_(control),
      poll_(context.io, drain_interval, [this] { return wait(); }) {}

void Drain::drain() {
    GPUNBD_ASSERT(!work_, "a server drains once");
    deadline_ = std::chrono::steady_clock::now() + context_.options.limits.drain;
    poll_.start();
    total_ = workers_.connections();
    work_.emplace("draining", "", total_, "connections");
    context_.progress.watch([] { return true; });
    if (!wait()) poll_.stop();
}

bool Drain::wait() {
    const bool expired = std::chrono::steady_clock::now() >= deadline_;
    const std::uint64_t connections = workers_.connections();
    if (work_) work_->set_done(total_ - std::min(total_, connections));
    if (connections == 0 && (expired || !control_.end_is_held())) {
        context_.progress.stop();
        context_.io.stop();
        return false;
    }
    if (expired) {
        for (const auto& worker : workers_.workers()) worker->cut_sessions();
    }
    return true;
}

}  // namespace gpunbd::server
