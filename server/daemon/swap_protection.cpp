#include "server/daemon/swap_protection.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>

#include "server/daemon/worker_pool.hpp"
#include "server/protection/locked_memory.hpp"
#include "server/protection/protection.hpp"
#include "server/protection/swap_devices.hpp"

namespace gpunbd::server {

namespace {

bool is_of(const SwapDevice& device, const Export& exported) {
    if (!exported.options.swap || exported.use->connections() == 0) return false;
    return device.backend.empty() ? device.bytes == exported.info.size
                                  : device.backend == exported.info.instance;
}

constexpr auto swapoff_interval = std::chrono::seconds(1);
constexpr auto swapoff_extension = 10 * swapoff_interval;  // of the supervisor's stop timeout

}  // namespace

std::vector<std::string> swapped_to(const ExportRegistry::Exports& exports,
                                    const std::string& root) {
    std::vector<std::string> paths;
    for (const SwapDevice& device : served_swap_devices(root)) {
        const bool ours = std::any_of(exports.begin(), exports.end(),
                                      [&](const auto& each) { return is_of(device, *each); });
        if (ours) paths.push_back(device.path);
    }
    return paths;
}

std::vector<std::future<void>> warm_up(const std::vector<std::unique_ptr<Worker>>& workers,
                                       const ExportRegistry::Exports& exports) {
    std::vector<storage::Device*> devices;
    for (const auto& each : exports) {
        if (!each->options.swap) continue;
        each->volume->start_provisioners();
        for (storage::Device* device : each->volume->devices()) devices.push_back(device);
    }
    return open_channels(workers, devices, grow_heap);
}

SwapProtection::SwapProtection(ServerContext& context, const WorkerPool& workers,
                               ServerControl& control)
    : context_(context),
      workers_(workers),
      control_(control),
      poll_(context.io, swapoff_interval, [this] { return wait_for_swapoff(); }) {}

void SwapProtection::start() {
    if (!context_.protects_swap) return;
    for (std::future<void>& each : warm_up(workers_.workers(), *context_.exports.snapshot())) {
        each.get();
    }
    if (const auto error = lock_all_memory()) throw std::runtime_error("swap: " + *error);
    spdlog::info("swap: {}", protection_summary());
}

Service::Commit SwapProtection::reload(const config::Options& next, Problems& problems) {
    if (next.any_swap() && !context_.protects_swap) {
        problems.emplace_back("swap: cannot be enabled by a reload; restart the server");
    }
    return {};
}

bool SwapProtection::delays_end() {
    if (!context_.protects_swap) return false;
    const auto devices = swapped_to(*context_.exports.snapshot());
    if (devices.empty()) return false;
    spdlog::warn(
        "the server ends when this machine does not swap to it any more; run swapoff {}; a second "
        "signal ends it at once, and all pages that are swapped out to it are lost",
        fmt::join(devices, " "));
    context_.lifecycle.enter(Phase::awaiting_swapoff);
    extend_stop_timeout();
    poll_.start();
    return true;
}

bool SwapProtection::wait_for_swapoff() {
    if (context_.lifecycle.draining()) return false;
    if (!swapped_to(*context_.exports.snapshot()).empty()) {
        extend_stop_timeout();
        return true;
    }
    spdlog::info("this machine does not swap to it any more");
    control_.end_after_swapoff();
    return false;
}

void SwapProtection::extend_stop_timeout() const {
    context_.supervision.notify(fmt::format("STATUS=waiting for swapoff\nEXTEND_TIMEOUT_USEC={}",
                                            std::chrono::microseconds(swapoff_extension).count()));
}

}  // namespace gpunbd::server
