#include "server/reclaim/reclaimer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "config/size.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/migration/pressure_watch.hpp"
#include "storage/migration/shortage_log.hpp"

namespace gpunbd::server {

namespace {

ReclaimStatus describe(const std::string& device, const storage::Migration& result) {
    ReclaimStatus status;
    status.device = device;
    status.wanted = result.wanted;
    status.released = result.released;
    status.freed = result.freed;
    status.dropped = result.dropped;
    for (const auto& [place, bytes] : result.moved) {
        status.moved.push_back({.device = place, .bytes = bytes});
    }
    status.seconds = std::chrono::duration<double>(result.duration).count();
    const bool stayed = result.missing() != 0 || result.no_room || result.busy != 0 ||
                        result.failed != 0 || !result.error.empty();
    if (stayed) status.why_not = storage::reason_for_staying(result);
    return status;
}

std::string moved_text(const ReclaimStatus& status) {
    std::string out;
    for (const MovedStatus& each : status.moved) {
        out += fmt::format("{}{} to {}", out.empty() ? "moved " : ", ",
                           config::human_size(each.bytes), each.device);
    }
    if (status.dropped != 0) {
        out += fmt::format("{}dropped {} of caches", out.empty() ? "" : ", ",
                           config::human_size(status.dropped));
    }
    return out.empty() ? "moved nothing" : out;
}

void log_result(const ReclaimStatus& status, const std::string& what) {
    storage::LogLine(status.complete() ? spdlog::level::info : spdlog::level::warn)
        .with("device", status.device)
        .with("bytes", status.released)
        .log("{}: {}, {}, in {:.2f} s{}{}", status.device, what, moved_text(status), status.seconds,
             status.complete() ? "" : "; the rest stays: ", status.why_not);
}

// Logs the result before it is passed to `done`. `what`: what was done. `complete`: adds what is in
// effect now.
using Complete = std::function<void(const storage::Migration&, ReclaimStatus&)>;
storage::Migrator::Done logged(std::string_view device, Reclaimer::Done done,
                               std::string (*what)(const ReclaimStatus&), Complete complete) {
    return [id = std::string(device), done = std::move(done), what,
            complete = std::move(complete)](const storage::Migration& result) {
        storage::log_if_possible([&] {
            ReclaimStatus status = describe(id, result);
            complete(result, status);
            log_result(status, what(status));
            done(status);
        });
    };
}

std::optional<std::uint64_t> limit_of(const storage::SlabBudget& budget) {
    const std::uint64_t limit = budget.limit();
    return limit == storage::SlabBudget::unlimited ? std::nullopt : std::optional(limit);
}

// Whether pages have not returned because of the limit that other claims and keep_free still ask
// for, which is no failure.
bool stays_for_others(storage::Device& device, const storage::Migration& result) {
    if (!result.no_room || result.busy != 0 || result.failed != 0 || !result.error.empty()) {
        return false;
    }
    const std::uint64_t limit = device.budget().limit();
    return limit - std::min(limit, device.budget().used()) < device.available();
}

}  // namespace

std::uint64_t Claims::left() const {
    std::uint64_t left = base_;
    for (const Claim& each : claims_) left -= std::min(left, each.withheld);
    return left;
}

std::uint64_t Claims::begin(Claim claim, std::uint64_t in_use) {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(std::ranges::find(claims_, claim.id, &Claim::id) == claims_.end(),
                  "a claim begins once on a device");
    if (claims_.empty()) base_ = in_use;
    claim.bytes = std::min(base_, claim.asked.value_or(base_));
    claim.withheld = claim.bytes;
    const std::uint64_t before = left();
    claims_.push_back(std::move(claim));
    return before - left();
}

bool Claims::set_effect(std::uint64_t id, const Effect& effect) {
    const Lock lock(mutex_);
    const auto found = std::ranges::find(claims_, id, &Claim::id);
    if (found == claims_.end()) return false;
    if (effect.lowered < effect.wanted) {
        if (effect.lowered == 0) {
            claims_.erase(found);
            return false;
        }
        found->bytes = effect.lowered;  // without what earlier claims have already
    }
    GPUNBD_ASSERT(found->bytes <= base_, "a claim is a part of what was in use");
    found->withheld = std::max(found->bytes, effect.limit_fell);
    return true;
}

std::optional<std::uint64_t> Claims::end(std::optional<std::uint64_t> id) {
    const Lock lock(mutex_);
    const std::uint64_t before = left();
    const auto ended =
        std::erase_if(claims_, [&](const Claim& each) { return !id || each.id == *id; });
    if (id && ended == 0) return 0;
    if (claims_.empty()) return std::nullopt;
    GPUNBD_ASSERT(left() >= before, "the end of a claim raises what exports may use");
    return left() - before;
}

bool Claims::contains(std::uint64_t id) const {
    const Lock lock(mutex_);
    return std::ranges::find(claims_, id, &Claim::id) != claims_.end();
}

std::vector<ClaimStatus> Claims::list(Claim::Clock::time_point now) const {
    using Seconds = std::chrono::duration<double>;
    const Lock lock(mutex_);
    std::vector<ClaimStatus> out;
    for (const Claim& each : claims_) {
        const Seconds age = now - each.begun;
        ClaimStatus& status = out.emplace_back(ClaimStatus{
            .id = each.id, .owner = each.owner, .asked = each.asked, .bytes = each.bytes});
        status.age = age.count();
        if (each.duration) status.ends_in = std::max(0.0, (*each.duration - age).count());
    }
    return out;
}

Reclaimer::Reclaimer(std::function<Volumes()> volumes, const storage::MigratorOptions& options)
    : volumes_(std::move(volumes)), options_(options) {}

void Reclaimer::update(const std::vector<config::DeviceOptions>& options) {
    for (const auto& volume : volumes_()) {
        for (std::uint32_t i = 0; i != volume->layout_devices(); ++i) {
            const storage::PagePool& pool = volume->pool(i);
            const storage::DeviceInfo& info = pool.device().info();
            const bool gives_back =
                !pool.spills().empty() || volume->cache() != nullptr || info.revocable != 0;
            if (gives_back && find(info.id) == nullptr) add(pool.device());
        }
    }
    for (const std::string& id : devices()) {
        const auto found = std::ranges::find(options, id, &config::DeviceOptions::id);
        DeviceReclaim& device = *find(id);
        const config::DeviceOptions its = found == options.end() ? config::DeviceOptions{} : *found;
        device.keep_free = its.keep_free;
        device.hold(held_.contains(id));
        device.watch.set_keep_free(its.keep_free);
        device.migrator.set_return_rate(its.reclaim_rate.value_or(0));
    }
}

std::vector<std::future<void>> Reclaimer::prepare() {
    std::vector<std::future<void>> prepared;
    for (const std::string& id : devices()) {
        const auto promise = std::make_shared<std::promise<void>>();
        prepared.push_back(promise->get_future());
        find(id)->migrator.prepare([id, promise](const storage::Migration& result) {
            if (result.error.empty()) return promise->set_value();
            promise->set_exception(std::make_exception_ptr(std::runtime_error(
                fmt::format("pages of {} cannot be moved: {}", id, result.error))));
        });
    }
    return prepared;
}

void Reclaimer::add(storage::Device& device) {
    auto added = std::make_shared<DeviceReclaim>(device, volumes_, options_);
    added->migrator.start();
    added->watch.start();
    if (device.is_system_memory()) watch_pressure(*added);
    if (device.info().revocable != 0) added->revocable.emplace(device, added->migrator).start();
    const Lock lock(mutex_);
    GPUNBD_ASSERT(!devices_.contains(device.info().id), "each device is watched once");
    devices_.emplace(device.info().id, std::move(added));
}

void Reclaimer::watch_pressure(DeviceReclaim& device) {
    storage::PressureTriggers triggers = storage::open_pressure_triggers("/");
    if (triggers.files.empty()) {
        const std::string& id = device.device.info().id;
        storage::LogLine(spdlog::level::info)
            .with("device", id)
            .log("{}: memory pressure is not noticed, so use keep_free to give memory back: {}", id,
                 triggers.why_none);
        return;
    }
    device.pressure.emplace(device.device, device.migrator, std::move(triggers.files));
    device.pressure->start();
}

void Reclaimer::DeviceReclaim::hold(bool held) {
    watch.hold(held);
    // With keep_free, the other watch returns the pages.
    if (pressure) pressure->hold(held || keep_free != 0);
}

std::vector<std::string> Reclaimer::devices() const {
    const Lock lock(mutex_);
    std::vector<std::string> ids;
    ids.reserve(devices_.size());
    for (const auto& [id, device] : devices_) ids.push_back(id);
    return ids;
}

Reclaimer::DeviceReclaim* Reclaimer::find(std::string_view device) const {
    const Lock lock(mutex_);
    const auto found = devices_.find(device);
    return found == devices_.end() ? nullptr : found->second.get();
}

std::shared_ptr<Claims> Reclaimer::claims_of(std::string_view device) {
    const Lock lock(mutex_);
    auto found = claims_.find(device);
    if (found == claims_.end()) {
        found = claims_.emplace(device, std::make_shared<Claims>()).first;
    }
    return found->second;
}

bool Reclaimer::reclaim(std::string_view device, const Claim& claim, Done done) {
    DeviceReclaim* const found = find(device);
    if (found == nullptr) return false;
    GPUNBD_ASSERT(!claims_on(device).contains(claim.id), "each request has a claim of its own");
    const auto claims = claims_of(device);
    held_.try_emplace(std::string(device)).first->second.insert(claim.id);
    found->hold(true);
    storage::SlabBudget& budget = found->device.budget();
    const auto wanted = std::make_shared<std::uint64_t>(0);
    found->migrator.claim(
        [claims, claim, &budget, wanted] {
            return *wanted = claims->begin(claim, std::min(budget.used(), budget.limit()));
        },
        logged(
            device, std::move(done),
            [](const ReclaimStatus& status) {
                return fmt::format("gave back {} of {}", config::human_size(status.released),
                                   config::human_size(status.wanted));
            },
            [claims, id = claim.id, &budget, wanted](const storage::Migration& result,
                                                     ReclaimStatus& status) {
                const Claims::Effect effect{
                    .wanted = *wanted, .lowered = result.lowered, .limit_fell = result.limit_fell};
                if (claims->set_effect(id, effect)) status.claim = id;
                status.limit = limit_of(budget);
            }));
    return true;
}

bool Reclaimer::end(std::string_view device, std::optional<std::uint64_t> claim, Done done) {
    DeviceReclaim* const found = find(device);
    if (found == nullptr) return false;
    storage::Device& memory = found->device;
    found->migrator.end_claim(
        [claims = claims_of(device), claim, &memory, keep_free = found->keep_free] {
            const std::uint64_t bytes = claims->end(claim).value_or(storage::SlabBudget::unlimited);
            if (keep_free == 0) return bytes;
            const std::uint64_t free = memory.free_memory();
            return std::min(bytes, free - std::min(free, keep_free));
        },
        logged(
            device, std::move(done),
            [](const ReclaimStatus& status) {
                return status.limit ? fmt::format("exports may use {} there now",
                                                  config::human_size(*status.limit))
                                    : std::string("gives no more memory back");
            },
            [&memory](const storage::Migration& result, ReclaimStatus& status) {
                status.limit = limit_of(memory.budget());
                if (stays_for_others(memory, result)) status.why_not.clear();
            }));
    return true;
}

std::vector<std::string> Reclaimer::devices_of(std::uint64_t claim) const {
    std::vector<std::string> devices;
    for (const auto& [device, claims] : held_) {
        if (claims.contains(claim)) devices.push_back(device);
    }
    return devices;
}

Reclaimer::Ids Reclaimer::claims_on(std::string_view device) const {
    const auto held = held_.find(device);
    return held == held_.end() ? Ids() : held->second;
}

void Reclaimer::forget(std::string_view device, const Ids& ended) {
    const auto held = held_.find(device);
    if (held == held_.end()) return;
    for (const std::uint64_t id : ended) held->second.erase(id);
    if (!held->second.empty()) return;
    held_.erase(held);
    if (DeviceReclaim* const found = find(device)) found->hold(false);
}

void Reclaimer::add_to(DeviceStatus& status) const {
    std::shared_ptr<DeviceReclaim> found;
    {
        const Lock lock(mutex_);
        const auto place = devices_.find(status.id);
        if (place == devices_.end()) return;
        found = place->second;
        const auto claims = claims_.find(status.id);
        if (claims != claims_.end()) status.claims = claims->second->list();
    }
    status.reclaimable = true;
    status.limit = limit_of(found->device.budget());
    if (status.limit) {
        const std::uint64_t room = *status.limit - std::min(*status.limit, status.allocated);
        status.withheld = status.available - std::min(status.available, room);
        status.available -= status.withheld;
    }
    const storage::Migrator::Totals totals = found->migrator.totals();
    status.moved_out = totals.moved_out;
    status.moved_back = totals.moved_back;
    status.not_reclaimed = totals.unmet;
    if (totals.reclaims != 0) {
        status.last_reclaim =
            std::chrono::duration<double>(totals.last_reclaim_end.time_since_epoch()).count();
    }
}

void Reclaimer::stop() {
    std::map<std::string, std::shared_ptr<DeviceReclaim>, std::less<>> ending;
    {
        const Lock lock(mutex_);
        ending.swap(devices_);
    }
    ending.clear();
    // Requests that had not begun were dropped: their claims do not begin any more.
    for (auto at = held_.begin(); at != held_.end();) {
        const auto claims = claims_of(at->first);
        std::erase_if(at->second, [&](std::uint64_t id) { return !claims->contains(id); });
        at = at->second.empty() ? held_.erase(at) : std::next(at);
    }
}

}  // namespace gpunbd::server
