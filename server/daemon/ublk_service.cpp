#include "server/daemon/ublk_service.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "config/exports_by_name.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "server/base/process.hpp"
#include "server/protection/swap_devices.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

constexpr auto unused_interval = std::chrono::milliseconds(200);
// systemd stops services that are not ordered against this one at the same time. But it unmounts
// local file systems only after this server has ended.
constexpr auto patience_at_shutdown = std::chrono::seconds(20);

bool any_ublk(const config::Options& options) {
    return std::any_of(options.exports.begin(), options.exports.end(),
                       [](const auto& each) { return each.ublk.enabled; });
}

// Only systemd may keep contents after an orderly end of the server: `gpunbd keep` ends with it.
bool started_by_systemd() {
    const char* const process = std::getenv("SYSTEMD_EXEC_PID");
    return process != nullptr && std::to_string(::getpid()) == process;
}

bool any_swap(const std::vector<std::string>& paths) {
    const std::vector<SwapDevice> swaps = served_swap_devices();
    return std::any_of(swaps.begin(), swaps.end(), [&](const SwapDevice& each) {
        return std::find(paths.begin(), paths.end(), each.path) != paths.end();
    });
}

// Whether a device that was made for `a` also serves `b`.
bool same_device(const config::ExportOptions& a, config::ExportOptions b) {
    b.description = a.description;
    b.tls_required = a.tls_required;
    b.access = a.access;
    b.max_connections = a.max_connections;
    b.max_connections_per_peer = a.max_connections_per_peer;
    b.rates = a.rates;
    b.rates_per_peer = a.rates_per_peer;
    return a == b;
}

std::string would_remove(std::string_view change, const std::string& path) {
    return fmt::format(
        "the {} would remove {}, which is in use; unmount it first (or swapoff, or stop the device "
        "on it), or leave its export unchanged",
        change, path);
}

std::vector<std::uint32_t> predecessors_devices(const ServerContext& context) {
    const auto& predecessor = context.supervision.predecessor;
    return predecessor ? predecessor->ublk_devices() : std::vector<std::uint32_t>{};
}

}  // namespace

UblkService::UblkService(ServerContext& context, const WorkerPool& workers, ServerControl& control)
    : context_(context),
      workers_(workers),
      server_(control),
      next_server_expected_(started_by_systemd()),
      poll_(context.io, unused_interval, [this] { return wait_until_unused(); }) {}

void UblkService::open() {
    if (any_ublk(context_.options) || !predecessors_devices(context_).empty()) {
        control_ = std::make_unique<ublk::Control>();
    }
}

void UblkService::check_takeover() {
    const auto exports = context_.exports.snapshot();
    for (const std::uint32_t id : predecessors_devices(context_)) {
        const auto info = control_->info(id);
        if (!info) continue;
        const auto takes = [&](const auto& each) { return ublk::continues(*each, *info); };
        if (std::any_of(exports->begin(), exports->end(), takes)) continue;
        if (ublk::in_use(id)) {
            throw std::runtime_error(would_remove("upgrade", ublk::block_path(id)));
        }
        surplus_.push_back(id);
    }
}

void UblkService::start() {
    finish_takeover();
    const auto exports = context_.exports.snapshot();
    for (const auto& each : *exports) {
        if (each->options.ublk.enabled) make(each);
    }
    report_waiting();
}

void UblkService::report_waiting() {
    const std::vector<std::uint32_t> found = ublk::existing_ids();
    if (found.empty()) return;
    const auto opened = control_ ? nullptr : ublk::Control::open_if_permitted();
    ublk::Control* const control = control_ ? control_.get() : opened.get();
    if (control == nullptr) return;
    for (const std::uint32_t id : found) {
        const auto first = control->info(id);
        if (!first || !ublk::Mark(first->mark).is_gpunbd()) continue;
        const auto info = ublk::settled_info(*control, id, false);
        if (!info || info->state != ublk::DeviceState::quiesced) continue;
        spdlog::warn(
            "{}: waits for a server with the contents that it had, and programs that use it hang; "
            "serve its export again, or remove it by a server with ublk: {{id: {}}}",
            ublk::block_path(id), id);
    }
}

void UblkService::finish_takeover() {
    for (const std::uint32_t id : predecessors_devices(context_)) {
        const auto info = ublk::settled_info(*control_, id, true);
        if (info && info->state == ublk::DeviceState::live) {
            throw std::runtime_error(
                fmt::format("{}: the earlier server does not end", ublk::block_path(id)));
        }
    }
    for (const std::uint32_t id : std::exchange(surplus_, {})) {
        const std::string path = ublk::block_path(id);
        if (const int result = ublk::remove_abandoned(*control_, id); result != 0) {
            spdlog::error("{}: DEL_DEV: {}", path, std::strerror(-result));
        } else {
            spdlog::info("{}: removed, because no export continues it", path);
        }
    }
}

void UblkService::make(const std::shared_ptr<const Export>& exported) {
    GPUNBD_ASSERT(control_ && !has_device(*exported), "an export has one block device");
    auto device = std::make_unique<ublk::Device>(
        *control_, workers_.workers(),
        ublk::Device::Options{.exported = exported,
                              .max_in_flight = context_.options.limits.in_flight_per_connection,
                              .recoverable = exported->contents_outlive_server()});
    storage::LogLine(spdlog::level::info)
        .with("export", exported->info.name)
        .with("device", device->path())
        .log("export {}: {} {}", config::in_quotes(exported->info.name), device->path(),
             device->recovered() ? "continues" : "is ready");
    devices_.push_back(std::move(device));
}

Service::Commit UblkService::reload(const config::Options& next, Problems& problems) {
    if (any_ublk(next) && !control_) control_ = std::make_unique<ublk::Control>();
    config::ExportsByName exports;
    if (!devices_.empty()) exports = config::ExportsByName(next.exports);
    for (const auto& device : devices_) {
        for (const config::ExportOptions& each : next.exports) {
            const std::string& path = each.origin.device;
            if (path.empty() || !config::rules::same_file(path, device->path())) continue;
            problems.push_back(fmt::format(
                "export {}: origin.device: {} is the export {} of this server, which would wait "
                "for itself; name another device",
                config::in_quotes(each.name), device->path(),
                config::in_quotes(device->exported().info.name)));
        }
    }
    for (const auto& device : devices_) {
        const config::ExportOptions& its = device->exported().options;
        const config::ExportOptions* const later = exports.find(its.name);
        if ((later != nullptr && same_device(its, *later)) || !device->in_use()) continue;
        problems.push_back(fmt::format("export {}: {}", config::in_quotes(its.name),
                                       would_remove("change", device->path())));
    }
    return [this] { apply(); };
}

void UblkService::apply() {
    const auto exports = context_.exports.snapshot();
    std::erase_if(devices_, [&](const auto& device) {
        const auto later = context_.exports.find(device->exported().info.name);
        if (later && later->volume == device->exported().volume &&
            same_device(device->exported().options, later->options)) {
            device->update_rates();
            return false;
        }
        if (!device->in_use()) return true;
        spdlog::warn("{}: came into use during the reload, which does not change it",
                     device->path());
        return false;
    });
    for (const auto& each : *exports) {
        const bool waits = !each->volume->complete();  // for its contents
        if (!each->options.ublk.enabled || has_device(*each) || waits) continue;
        try {
            make(each);
        } catch (const std::exception& error) {
            spdlog::error("{}", error.what());
        }
    }
}

bool UblkService::has_device(const Export& exported) const {
    return std::any_of(devices_.begin(), devices_.end(), [&](const auto& each) {
        return each->exported().info.name == exported.info.name;
    });
}

bool UblkService::waits_for_next_server(const ublk::Device& device) const {
    return device.recoverable() && next_server_expected_;
}

std::vector<std::string> UblkService::used_to_the_end() const {
    std::vector<std::string> paths;
    for (const auto& device : devices_) {
        if (!waits_for_next_server(*device) && device->in_use()) paths.push_back(device->path());
    }
    return paths;
}

bool UblkService::delays_end() {
    if (!devices_.empty() && machine_is_shutting_down()) {
        next_server_expected_ = false;
        stop_at_ = std::chrono::steady_clock::now() + patience_at_shutdown;
    }
    const std::vector<std::string> used = used_to_the_end();
    if (used.empty()) return false;
    spdlog::warn(
        "the server ends when {} {} not in use any more; unmount the file systems on it; {}",
        fmt::join(used, " and "), used.size() == 1 ? "is" : "are",
        stop_at_ ? fmt::format("since the machine shuts down, it ends after {} s in any case",
                               std::chrono::seconds(patience_at_shutdown).count())
                 : "a second signal ends it at once, and what they have not written is lost");
    context_.lifecycle.enter(Phase::awaiting_swapoff);
    poll_.start();
    return true;
}

bool UblkService::wait_until_unused() {
    if (context_.lifecycle.draining()) return false;
    const std::vector<std::string> used = used_to_the_end();
    if (!used.empty()) {
        const bool time_is_up = stop_at_ && std::chrono::steady_clock::now() >= *stop_at_;
        if (!time_is_up || any_swap(used)) return true;
        spdlog::error(
            "{}: still in use while the machine shuts down; its users get I/O errors; mount it "
            "with -o _netdev, so that systemd unmounts it before it stops the server",
            fmt::join(used, ", "));
    }
    server_.drain();
    return false;
}

void UblkService::drain() {
    if (devices_.empty() || removal_.joinable()) return;
    std::vector<ublk::Device*> removed;
    for (const auto& device : devices_) {
        if (waits_for_next_server(*device) && device->in_use()) {
            spdlog::info("{}: is in use; its requests wait for the next server", device->path());
            device->leave();
        } else {
            removed.push_back(device.get());
        }
    }
    removing_ = true;
    const storage::SignalsBlocked blocked;
    removal_ = std::thread([this, removed = std::move(removed)] {
        for (ublk::Device* device : removed) device->remove();
        removing_ = false;
    });
}

bool UblkService::ending() const {
    return removing_ || std::any_of(devices_.begin(), devices_.end(), [](const auto& device) {
               return device->leaving() && !device->paused();
           });
}

void UblkService::pause_requests() {
    for (const auto& device : devices_) device->pause();
}

bool UblkService::paused() const {
    return std::all_of(devices_.begin(), devices_.end(),
                       [](const auto& device) { return device->paused(); });
}

void UblkService::resume_requests() {
    for (const auto& device : devices_) device->resume();
}

void UblkService::hand_over() {
    for (const auto& device : devices_) device->leave();
}

bool UblkService::left_devices() const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [](const auto& device) { return device->leaving(); });
}

std::vector<std::uint32_t> UblkService::ids() const {
    std::vector<std::uint32_t> out;
    out.reserve(devices_.size());
    for (const auto& device : devices_) out.push_back(device->id());
    return out;
}

const ublk::Device* UblkService::bound_to_this_server() const {
    const auto found = std::find_if(devices_.begin(), devices_.end(),
                                    [](const auto& device) { return !device->recoverable(); });
    return found == devices_.end() ? nullptr : found->get();
}

void UblkService::stop() {
    if (removal_.joinable()) removal_.join();
    // Those that are left are destroyed after the workers have ended.
    std::erase_if(devices_, [](const auto& device) { return !device->leaving(); });
}

}  // namespace gpunbd::server
