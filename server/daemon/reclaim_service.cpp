#include "server/daemon/reclaim_service.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <system_error>
#include <utility>

#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

constexpr auto pause_check_interval = std::chrono::seconds(1);

// The volumes of the exports, and those of earlier exports that clients still use.
class VolumesInUse {
 public:
    explicit VolumesInUse(const ExportRegistry& exports) : exports_(exports) {}

    Reclaimer::Volumes operator()() {
        const auto exports = exports_.snapshot();
        const std::lock_guard lock(mutex_);
        for (const auto& each : *exports) {
            const auto is_same = [&](const auto& known) { return known.lock() == each->volume; };
            if (std::ranges::none_of(known_, is_same)) known_.push_back(each->volume);
        }
        Reclaimer::Volumes volumes;
        for (const auto& known : known_) {
            if (auto volume = known.lock()) volumes.push_back(std::move(volume));
        }
        std::erase_if(known_, [](const auto& known) { return known.expired(); });
        return volumes;
    }

 private:
    const ExportRegistry& exports_;
    std::mutex mutex_;
    std::vector<std::weak_ptr<storage::Volume>> known_;
};

// Moving uses its own staging memory, of which little is enough for each thread.
storage::MigratorOptions options_of(const config::PipelineOptions& pipeline) {
    const std::uint64_t chunk = pipeline.chunk_size.value_or(0);
    constexpr std::uint64_t staging = 8 << 20;  // bytes in each direction
    storage::MigratorOptions options;
    options.channels.chunk_size = static_cast<std::uint32_t>(chunk);
    options.channels.pinned = std::max(staging, 2 * chunk);
    return options;
}

// Collects the results of several devices.
class Results {
 public:
    explicit Results(Completion completion, std::size_t devices)
        : completion_(std::move(completion)), left_(devices) {}

    void add(const ReclaimStatus& status) {
        const std::lock_guard lock(mutex_);
        reclaimed_.devices.push_back(status);
        if (--left_ == 0) completion_(std::move(reclaimed_));
    }

 private:
    const Completion completion_;
    std::mutex mutex_;
    std::size_t left_;
    Reclaimed reclaimed_;
};

}  // namespace

ReclaimService::ReclaimService(ServerContext& context)
    : context_(context),
      reclaimer_(std::make_shared<Reclaimer>(
          [volumes = std::make_shared<VolumesInUse>(context.exports)] { return (*volumes)(); },
          options_of(context.options.pipeline))) {}

// After a takeover, resume() follows.
void ReclaimService::start() {
    if (context_.supervision.predecessor) return;
    reclaimer_->update(context_.options.devices);
    if (!context_.protects_swap) return;
    for (std::future<void>& each : reclaimer_->prepare()) each.get();
}

Service::Commit ReclaimService::reload(const config::Options& next, Problems& problems) {
    for (std::string& each : context_.devices.spill_conflicts(next.devices)) {
        problems.push_back(std::move(each));
    }
    return [this] {
        reclaimer_->update(context_.options.devices);
        if (context_.protects_swap) reclaimer_->prepare();
    };
}

void ReclaimService::resume() {
    if (context_.lifecycle.refuses_changes()) return;
    try {
        reclaimer_->update(context_.options.devices);
        if (context_.protects_swap) reclaimer_->prepare();
    } catch (const std::system_error& error) {
        spdlog::warn("memory of devices is not given back: {}", error.what());
    }
}

void ReclaimService::stop() {
    timers_.clear();
    reclaimer_->stop();
}

void ReclaimService::reclaim(const ReclaimRequest& request, const Completion& completion) {
    const std::vector<std::string> devices = devices_for(request.device, completion);
    const auto results = std::make_shared<Results>(completion, devices.size());
    for (const std::string& device : devices) {
        timers_.erase(device);
        reclaimer_->reclaim(device, request.bytes,
                            [results](const ReclaimStatus& status) { results->add(status); });
        if (request.duration) end_later(device, *request.duration);
    }
}

void ReclaimService::end(const std::string& device, const Completion& completion) {
    const std::vector<std::string> devices = devices_for(device, completion);
    const auto results = std::make_shared<Results>(completion, devices.size());
    for (const std::string& each : devices) {
        timers_.erase(each);
        reclaimer_->end(each, [results](const ReclaimStatus& status) { results->add(status); });
    }
}

std::vector<std::string> ReclaimService::devices_for(const std::string& device,
                                                     const Completion& completion) {
    if (context_.lifecycle.refuses_changes()) {
        completion(context_.lifecycle.refusal());
        return {};
    }
    reclaimer_->update(context_.options.devices);
    std::vector<std::string> devices = reclaimer_->devices();
    if (devices.empty()) {
        completion(NotDone{
            .why = "no device of an export has spill memory; add spill to it in the configuration",
            .unknown = true});
        return {};
    }
    if (device.empty()) return devices;
    if (std::ranges::find(devices, device) != devices.end()) return {device};
    completion(NotDone{.why = fmt::format("{} has no spill memory, or no export uses it; the "
                                          "devices that have are {}",
                                          config::in_quotes(device), fmt::join(devices, ", ")),
                       .unknown = true});
    return {};
}

void ReclaimService::end_later(const std::string& device, std::chrono::seconds duration) {
    Timer& timer = timers_.emplace(device, context_.io).first->second;
    timer.expires_after(duration);
    timer.async_wait(
        [this, device, weak = std::weak_ptr(reclaimer_)](boost::system::error_code error) {
            const auto reclaimer = weak.lock();
            if (error || !reclaimer || reclaimer->end(device, [](const ReclaimStatus&) {})) return;
            end_later(device, pause_check_interval);
        });
}

}  // namespace gpunbd::server
