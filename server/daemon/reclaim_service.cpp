#include "server/daemon/reclaim_service.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <utility>

#include "config/quote.hpp"
#include "server/base/task.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

namespace {

constexpr auto dropped_end_interval = std::chrono::seconds(1);

// Moving uses its own staging memory, of which little is enough for each thread.
storage::MigratorOptions options_of(ServerContext& context) {
    const std::uint64_t chunk = context.options.pipeline.chunk_size.value_or(0);
    constexpr std::uint64_t staging = 8 << 20;  // bytes in each direction
    storage::MigratorOptions options;
    options.channels.chunk_size = static_cast<std::uint32_t>(chunk);
    options.channels.pinned = std::max(staging, 2 * chunk);
    options.drop_unused = [&context](const storage::Device& device) {
        KeptContents* const contents = context.kept.contents.get();
        if (contents == nullptr || !contents->drop_unused(device)) return false;
        context.disposal.wait();
        return true;
    };
    return options;
}

// Collects the results of several devices.
class Results {
 public:
    explicit Results(Completion completion, std::size_t devices)
        : completion_(std::move(completion)), left_(devices) {}

    void add(const ReclaimStatus& status) {
        const Lock lock(mutex_);
        GPUNBD_ASSERT(left_ != 0, "each device reports its result once");
        reclaimed_.devices.push_back(status);
        if (--left_ == 0) completion_(std::move(reclaimed_));
    }

 private:
    const Completion completion_;
    Mutex mutex_;
    std::size_t left_ GUARDED_BY(mutex_);
    Reclaimed reclaimed_ GUARDED_BY(mutex_);
};

}  // namespace

ReclaimService::ReclaimService(ServerContext& context)
    : context_(context),
      calls_(context.io),
      reclaimer_([&context] { return context.disposal.volumes(); }, options_of(context)),
      tasks_(context.io) {}

// After a takeover, resume() follows.
void ReclaimService::start() {
    if (context_.supervision.predecessor) return;
    reclaimer_.update(context_.options.devices);
    if (!context_.protects_swap) return;
    for (std::future<void>& each : reclaimer_.prepare()) each.get();
}

Service::Commit ReclaimService::reload(const config::Options& next, Problems& problems) {
    for (std::string& each : context_.devices.spill_conflicts(next.devices)) {
        problems.push_back(std::move(each));
    }
    return [this] {
        reclaimer_.update(context_.options.devices);
        if (context_.protects_swap) reclaimer_.prepare();
    };
}

void ReclaimService::resume() {
    if (context_.lifecycle.refuses_changes()) return;
    try {
        reclaimer_.update(context_.options.devices);
        if (context_.protects_swap) reclaimer_.prepare();
    } catch (const std::system_error& error) {
        spdlog::warn("memory of devices is not given back: {}", error.what());
    }
}

void ReclaimService::stop() {
    tasks_.clear();
    reclaimer_.stop();
}

void ReclaimService::reclaim(const ReclaimRequest& request, const Completion& completion) {
    const std::vector<std::string> devices = devices_for(request.device, completion);
    if (devices.empty()) return;
    const auto results = std::make_shared<Results>(completion, devices.size());
    const Claim claim{.id = ++last_claim_,
                      .owner = request.owner,
                      .asked = request.bytes,
                      .duration = request.duration};
    for (const std::string& device : devices) {
        reclaimer_.reclaim(
            device, claim,
            [results, forgets = forget_later({claim.id})](const ReclaimStatus& status) {
                if (!status.claim) forgets(status);
                results->add(status);
            });
    }
    if (request.duration) tasks_.start(end_later(claim.id, *request.duration));
}

void ReclaimService::end(const EndOfReclaim& request, const Completion& completion) {
    std::vector<std::string> devices = devices_for(request.device, completion);
    if (devices.empty()) return;
    if (request.claim) {
        const std::vector<std::string> its = reclaimer_.devices_of(*request.claim);
        std::erase_if(devices, [&](const std::string& each) {
            return std::ranges::find(its, each) == its.end();
        });
        if (devices.empty()) {
            return completion(NotDone{
                .why =
                    fmt::format("there is no claim {}; gpunbd status lists them", *request.claim),
                .unknown = true});
        }
    }
    const auto results = std::make_shared<Results>(completion, devices.size());
    for (const std::string& each : devices) {
        const Reclaimer::Ids ended =
            request.claim ? Reclaimer::Ids{*request.claim} : reclaimer_.claims_on(each);
        reclaimer_.end(each, request.claim,
                       [results, forgets = forget_later(ended)](const ReclaimStatus& status) {
                           forgets(status);
                           results->add(status);
                       });
    }
}

// For the threads of devices.
Reclaimer::Done ReclaimService::forget_later(const Reclaimer::Ids& ended) {
    return [this, calls = calls_.poster(), ended](const ReclaimStatus& status) {
        calls.post([this, device = status.device, ended] { reclaimer_.forget(device, ended); });
    };
}

std::vector<std::string> ReclaimService::devices_for(const std::string& device,
                                                     const Completion& completion) {
    if (context_.lifecycle.refuses_changes()) {
        completion(context_.lifecycle.refusal());
        return {};
    }
    reclaimer_.update(context_.options.devices);
    std::vector<std::string> devices = reclaimer_.devices();
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

// Tries again if the requests were dropped, because another server tried to take over meanwhile.
Task<> ReclaimService::end_later(std::uint64_t claim, std::chrono::seconds duration) {
    boost::asio::steady_timer timer(context_.io);
    // Each request in progress has a copy.
    const auto forget = std::make_shared<const Reclaimer::Done>(forget_later({claim}));
    for (;; duration = dropped_end_interval) {
        co_await sleep_for(context_.io, timer, duration);
        const std::vector<std::string> devices = reclaimer_.devices_of(claim);
        if (devices.empty()) co_return;
        if (forget.use_count() != 1) continue;
        for (const std::string& device : devices) {
            reclaimer_.end(device, claim,
                           [forget](const ReclaimStatus& status) { (*forget)(status); });
        }
    }
}

}  // namespace gpunbd::server
