#include "server/daemon/hand_over.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "config/quote.hpp"
#include "server/base/process.hpp"
#include "server/daemon/swap_protection.hpp"
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

HandOver::HandOver(ServerContext& context, const Parts& parts, ServerControl& control)
    : context_(context),
      parts_(parts),
      control_(control),
      program_(own_program()),
      tasks_(context.io) {}

void HandOver::begin() {
    if (context_.lifecycle.ending()) return;
    if (context_.lifecycle.phase() == Phase::handing_over) {
        spdlog::info("SIGUSR2: a new server is being started already");
        return;
    }
    if (const std::string reason = obstacle(); !reason.empty()) {
        spdlog::warn("SIGUSR2: nothing can be handed over to another server: {}", reason);
        return;
    }
    tasks_.start(hand_over_to_successor());
}

Task<> HandOver::hand_over_to_successor() {
    spdlog::info("SIGUSR2: starting {} to serve in place of this process", program_);
    const Supervision& supervision = context_.supervision;
    context_.lifecycle.enter(Phase::handing_over);
    parts_.reclaim.pause();
    std::string failure;
    try {
        upgrade_.emplace(Upgrade::Parts{context_.io, parts_.workers.workers(),
                                        parts_.listeners.all(), *context_.kept.contents,
                                        parts_.ublk, *supervision.socket});
        SuccessorStart start{.program = program_,
                             .arguments = own_arguments(),
                             .notify_address = supervision.socket->address(),
                             .capacity = supervision.store->capacity(),
                             .watched = supervision.watchdog_timeout};
        std::vector<UpgradeMessage> first = first_messages();
        co_await upgrade_->run(std::move(start), std::move(first));
    } catch (const std::exception& error) {
        failure = error.what();
    }
    if (failure.empty()) {
        control_.yield();
        upgrade_->activate();
        control_.handed_over();
        co_return;
    }
    give_up();
    spdlog::error("SIGUSR2: the new server did not start; this server continues: {}", failure);
    control_.resume();
}

void HandOver::give_up() {
    if (upgrade_) upgrade_->give_up();
    upgrade_.reset();
    context_.lifecycle.enter(Phase::serving);
}

void HandOver::cancel() {
    if (context_.lifecycle.phase() != Phase::handing_over) return;
    tasks_.clear();
    give_up();
    parts_.reclaim.resume();  // a server that waits for swapoff serves on
}

std::string HandOver::obstacle() const {
    if (context_.command.run) return "a command that --run has started ends with this server";
    if (!context_.kept.contents) {
        return "no supervisor keeps its memory; start it by gpunbd keep, or by systemd with "
               "FileDescriptorStoreMax=";
    }
    if (context_.lifecycle.phase() == Phase::starting || parts_.exports.has_work()) {
        return "its exports are being made; try again later";
    }
    if (parts_.saves.busy() || parts_.exports.restoring())
        return "an export is being saved or restored; try again later";
    if (const ublk::Device* const bound = parts_.ublk.bound_to_this_server()) {
        return fmt::format("{} ends with this server, because export {} does not have keep: true",
                           bound->path(), config::in_quotes(bound->exported().info.name));
    }
    const auto exports = context_.exports.snapshot();
    const auto outlives = [](const auto& each) { return each->contents_outlive_server(); };
    if (std::none_of(exports->begin(), exports->end(), outlives)) {
        return "no export has keep: true";
    }
    if (!swapped_to(*exports).empty() && !std::all_of(exports->begin(), exports->end(), outlives)) {
        return "this machine swaps to it, and not all of its exports have keep: true";
    }
    if (writes_of_removed_exports()) {
        return "an export that was removed is still writing to its origin; try again later";
    }
    for (const auto& each : *exports) {
        const std::string name = config::in_quotes(each->info.name);
        if (each->options.origin.is_writable() && !outlives(each)) {
            return fmt::format(
                "export {} writes to its origin, and its contents are not kept; restart this "
                "server, with keep: true",
                name);
        }
        if (outlives(each) && each->volume->cache() != nullptr) {
            if (const auto why = each->volume->cache()->why_it_stays()) {
                return fmt::format("export {}: {}; restart this server", name, *why);
            }
        }
        for (const storage::Device* device : each->volume->devices()) {
            if (device->failed()) {
                return fmt::format("{} has failed; restart this server", device->info().id);
            }
            if (!device->exclusive()) continue;
            return fmt::format("{} supports only one server at a time; restart this server",
                               device->info().id);
        }
    }
    return {};
}

bool HandOver::writes_of_removed_exports() const {
    if (context_.disposal.writes_origins()) return true;
    const auto exports = context_.exports.snapshot();
    const auto volumes = context_.disposal.volumes();
    return std::ranges::any_of(volumes, [&](const auto& volume) {
        const auto has_it = [&](const auto& each) { return each->volume == volume; };
        return volume->writes_to_source() && std::ranges::none_of(*exports, has_it);
    });
}

std::vector<UpgradeMessage> HandOver::first_messages() const {
    std::vector<UpgradeMessage> messages;
    for (Listeners::Copy& each : parts_.listeners.copies()) {
        messages.push_back({.kind = MessageKind::listener,
                            .body = text_body(each.name),
                            .descriptor = std::move(each.descriptor)});
    }
    std::set<std::string> devices;
    const auto exports = context_.exports.snapshot();
    for (const auto& each : *exports) {
        for (const storage::Device* device : each->volume->devices()) {
            devices.insert(device->info().identity);
        }
    }
    for (const std::string& device : devices) {
        messages.push_back({.kind = MessageKind::device, .body = text_body(device)});
    }
    for (const std::uint32_t id : parts_.ublk.ids()) {
        messages.push_back(
            {.kind = MessageKind::ublk_device, .body = text_body(std::to_string(id))});
    }
    for (auto& [device, found] : context_.devices.calibration_states()) {
        messages.push_back({.kind = MessageKind::calibration,
                            .body = encode_calibration({.device = device, .found = found})});
    }
    for (KeptExports::Copy& each : context_.kept.exports->copies()) {
        messages.push_back({.kind = MessageKind::run_time_export,
                            .body = text_body(each.name),
                            .descriptor = std::move(each.descriptor)});
    }
    for (KeptContents::Copy& each : context_.kept.contents->copies()) {
        messages.push_back({.kind = MessageKind::import,
                            .body = encode_import({.name = each.name, .entry = each.entry}),
                            .descriptor = std::move(each.descriptor)});
    }
    return messages;
}

}  // namespace gpunbd::server
