#include "server/reclaim/reclaimer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "config/size.hpp"
#include "storage/base/log_line.hpp"
#include "storage/migration/pressure_triggers.hpp"
#include "storage/migration/reason_for_staying.hpp"

namespace gpunbd::server {

namespace {

ReclaimStatus describe(const std::string& device, const storage::Migration& result) {
    ReclaimStatus status;
    status.device = device;
    status.wanted = result.wanted;
    status.released = result.released;
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
    return out.empty() ? "moved nothing" : out;
}

void log_result(const ReclaimStatus& status, const std::string& what) {
    storage::LogLine(status.complete() ? spdlog::level::info : spdlog::level::warn)
        .with("device", status.device)
        .with("bytes", status.released)
        .say("{}: {}, {}, in {:.2f} s{}{}", status.device, what, moved_text(status), status.seconds,
             status.complete() ? "" : "; the rest stays: ", status.why_not);
}

// Logs the result before it is passed to `done`. `what`: what was done.
storage::Migrator::Done logged(std::string_view device, Reclaimer::Done done,
                               std::string (*what)(const ReclaimStatus&)) {
    return
        [id = std::string(device), done = std::move(done), what](const storage::Migration& result) {
            storage::log_if_possible([&] {
                const ReclaimStatus status = describe(id, result);
                log_result(status, what(status));
                done(status);
            });
        };
}

}  // namespace

Reclaimer::Reclaimer(std::function<Volumes()> volumes, const storage::MigratorOptions& options)
    : volumes_(std::move(volumes)), options_(options) {}

void Reclaimer::update(const std::vector<config::DeviceOptions>& options) {
    for (const auto& volume : volumes_()) {
        for (std::uint32_t i = 0; i != volume->layout_devices(); ++i) {
            const storage::PagePool& pool = volume->pool(i);
            const storage::DeviceInfo& info = pool.device().info();
            const bool gives_back = !pool.spills().empty() || info.revocable != 0;
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
    const std::lock_guard lock(mutex_);
    devices_.emplace(device.info().id, std::move(added));
}

void Reclaimer::watch_pressure(DeviceReclaim& device) {
    storage::PressureTriggers triggers = storage::open_pressure_triggers("/");
    if (triggers.files.empty()) {
        const std::string& id = device.device.info().id;
        storage::LogLine(spdlog::level::info)
            .with("device", id)
            .say("{}: memory pressure is not noticed, so use keep_free to give memory back: {}", id,
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
    const std::lock_guard lock(mutex_);
    std::vector<std::string> ids;
    ids.reserve(devices_.size());
    for (const auto& [id, device] : devices_) ids.push_back(id);
    return ids;
}

Reclaimer::DeviceReclaim* Reclaimer::find(std::string_view device) const {
    const std::lock_guard lock(mutex_);
    const auto found = devices_.find(device);
    return found == devices_.end() ? nullptr : found->second.get();
}

bool Reclaimer::reclaim(std::string_view device, std::optional<std::uint64_t> bytes, Done done) {
    DeviceReclaim* const found = find(device);
    if (found == nullptr) return false;
    held_.emplace(device);
    found->hold(true);
    found->migrator.reclaim(bytes.value_or(storage::SlabBudget::unlimited),
                            logged(device, std::move(done), [](const ReclaimStatus& status) {
                                return fmt::format("gave back {} of {}",
                                                   config::human_size(status.released),
                                                   config::human_size(status.wanted));
                            }));
    return true;
}

bool Reclaimer::end(std::string_view device, Done done) {
    DeviceReclaim* const found = find(device);
    if (found == nullptr) return false;
    if (const auto held = held_.find(device); held != held_.end()) held_.erase(held);
    found->hold(false);
    std::uint64_t bytes = storage::SlabBudget::unlimited;
    if (found->keep_free != 0) {
        const std::uint64_t free = found->device.free_memory();
        bytes = free - std::min(free, found->keep_free);
    }
    found->migrator.release(bytes, logged(device, std::move(done), [](const ReclaimStatus&) {
                                return std::string("gives no more memory back");
                            }));
    return true;
}

void Reclaimer::add_to(DeviceStatus& status) const {
    std::shared_ptr<DeviceReclaim> found;
    {
        const std::lock_guard lock(mutex_);
        const auto place = devices_.find(status.id);
        if (place == devices_.end()) return;
        found = place->second;
    }
    status.reclaimable = true;
    const std::uint64_t limit = found->device.budget().limit();
    if (limit != storage::SlabBudget::unlimited) status.limit = limit;
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
        const std::lock_guard lock(mutex_);
        ending.swap(devices_);
    }
}

}  // namespace gpunbd::server
