#include "server/daemon/export_service.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <stdexcept>
#include <utility>
#include <variant>

#include "config/client_clones.hpp"
#include "config/exports_by_name.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "server/base/line_limit.hpp"
#include "server/daemon/finish_taking_over.hpp"
#include "server/daemon/keep_option.hpp"
#include "server/daemon/open_channels.hpp"
#include "server/daemon/warm_up.hpp"
#include "server/exports/reload_report.hpp"
#include "server/nbd/wait_memory.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr std::size_t max_waiting_edits = 1024;

// Adds the exports that were created at run time to those of the file.
void keep_run_time_exports(const config::Options& running, config::Options& loaded,
                           std::vector<std::string>& problems) {
    const config::ExportsByName earlier(running.exports);
    for (auto each = loaded.exports.begin(); each != loaded.exports.end(); ++each) {
        const config::ExportOptions* const twin = earlier.find(each->name);
        // An export keeps the size that it got at run time, unless the file has a new size.
        if (twin != nullptr && twin->origin.resized && each->size == twin->origin.configured_size) {
            config::ExportOptions& resized = loaded.exports.edit(each);
            resized.size = twin->size;
            resized.origin = twin->origin;
        }
    }
    const config::ExportsByName of_file(loaded.exports);
    for (const config::ExportOptions& each : running.exports) {
        const config::ExportOptions* const twin = of_file.find(each.name);
        if (!each.origin.run_time) continue;
        if (twin == nullptr) {
            loaded.exports.push_back(config::updated_clone(each, of_file));
        } else {
            problems.push_back(fmt::format(
                "export {} was created at run time, and the file has one of this name as well; "
                "rename it there, or remove the other by gpunbd export remove",
                config::in_quotes(each.name)));
        }
    }
}

// The name of the export that an edit has added, if it is a clone or restored. Such an export does
// not take over kept contents of its name.
std::optional<std::string> renewed_by(const config::Options& current,
                                      const config::Options& edited) {
    if (edited.exports.size() <= current.exports.size()) return std::nullopt;
    const config::ExportOptions& added = edited.exports.back();
    if (added.clone_of.empty() && added.restore.empty()) return std::nullopt;
    return added.name;
}

}  // namespace

struct ExportService::Reload {
    Edit edit;  // of the current options; its functions may be empty
    Source source = Source::current;
    config::Options options = {};
    Commit commit = {};
    std::shared_ptr<const ExportRegistry::Exports> before = {};
    std::string not_stored = {};  // the problem of Edit::store, if the edit is in effect
    std::map<std::string, std::string> not_restored = {};
    std::optional<std::string> renewed = {};  // see VolumeLife
    bool restores = false;                    // the export that the edit adds
};

struct ExportService::Restoring {
    MadeExports::Unfilled unfilled;
    std::function<std::string()> store;   // Edit::store; may be empty
    ServerAdminBackend::ChangeDone done;  // Edit::done; may be empty
    bool created;                         // by the edit of this server that waits for it
    const std::shared_ptr<const bool> counted;
    // If it has failed:
    std::string problem = {};
    std::string name = {};
    std::weak_ptr<storage::Volume> volume = {};
};

ExportService::ExportService(ServerContext& context, const WorkerPool& workers, CheckReload check)
    : context_(context), workers_(workers), check_(std::move(check)), maker_(context.io) {}

void ExportService::resume() {
    if (!context_.lifecycle.refuses_changes()) remove_failed();
    if (source_ == Source::file && !busy()) reload_file();
}

void ExportService::drain() {
    maker_.give_up();
    waiting_.clear();  // uncalled, which reports them
}

void ExportService::stop() { maker_.stop(); }

void ExportService::make_first(std::function<void()> serve) {
    maker_.submit({.prepare = [this]() -> ExportMaker::Make {
                       return [this](const std::stop_token& stop) {
                           return make_exports(context_.options.exports, context_.devices, {},
                                               volume_life(stop));
                       };
                   },
                   .done =
                       [this, serve = std::move(serve)](MadeExports made) {
                           try {
                               if (context_.lifecycle.draining()) return when_idle_();
                               if (!made.problems.empty()) {
                                   const std::string last = std::move(made.problems.back());
                                   made.problems.pop_back();
                                   for (const std::string& each : made.problems)
                                       spdlog::error("{}", each);
                                   throw std::runtime_error(last);
                               }
                               context_.exports.replace(std::move(made.exports),
                                                        templates_in(context_.options.exports));
                               refused_ = std::move(made.refused);
                               serve();
                               finish_taking_over(workers_.workers(), *context_.exports.snapshot(),
                                                  context_.retained.mappings.get());
                               when_idle_();
                           } catch (...) {
                               context_.lifecycle.failure = std::current_exception();
                               context_.io.stop();
                           }
                       }});
    log_progress();
}

void ExportService::reload_file() {
    source_ = Source::file;
    if (context_.lifecycle.phase() == Phase::handing_over) return;  // resume() continues
    context_.supervision.notify(reloading_message());
    if (busy()) {
        spdlog::info("SIGHUP: the file will be read after the current exports are made");
    }
    enqueue({});
}

void ExportService::edit(Edit edit) {
    const Lifecycle& lifecycle = context_.lifecycle;
    if (lifecycle.refuses_changes()) {
        return edit.done(std::get<NotDone>(lifecycle.refusal()).why);
    }
    if (lifecycle.phase() == Phase::starting)
        return edit.done("exports are being made; try again later");
    if (!busy()) return enqueue(std::move(edit));
    if (waiting_.size() == max_waiting_edits) {
        return edit.done("too many changes of exports are waiting; try again later");
    }
    waiting_.push_back(std::move(edit));
}

// Ahead of those that wait, and however many they are: it ends an edit that has begun.
void ExportService::enqueue_first(Edit edit) {
    if (context_.lifecycle.refuses_changes()) {
        return edit.done(std::get<NotDone>(context_.lifecycle.refusal()).why);
    }
    if (!busy()) return enqueue(std::move(edit));
    waiting_.push_front(std::move(edit));
}

void ExportService::begin_waiting_edit() {
    if (waiting_.empty() || busy()) return;
    Edit next = std::move(waiting_.front());
    waiting_.pop_front();
    edit(std::move(next));
}

void ExportService::change(const std::string& name, const ServerAdminBackend::Change& change,
                           const ServerAdminBackend::ChangeDone& done) {
    edit({.change = [name, change](config::Options& options) -> std::string {
              const auto found =
                  std::ranges::find(options.exports, name, &config::ExportOptions::name);
              if (found == options.exports.end()) return "the export does not exist any more";
              change(options.exports.edit(found));
              return {};
          },
          .done = done});
}

// The maker keeps only the last waiting job, so each job includes the work of the earlier ones.
void ExportService::enqueue(Edit edit) {
    GPUNBD_ASSERT(!edit.change || !busy(), "a job with an edit never waits, so it cannot be lost");
    const auto reload = std::make_shared<Reload>(Reload{.edit = std::move(edit)});
    maker_.submit({.prepare = [this, reload] { return prepare(reload); },
                   .done =
                       [this, reload](MadeExports made) {
                           finish(reload, std::move(made));
                           when_idle_();
                           asio::post(context_.io, [weak = std::weak_ptr(self_)] {
                               if (const auto self = weak.lock()) (*self)->begin_waiting_edit();
                           });
                       }});
    log_progress();
    // A job that has nothing to do is not done().
    if (!busy()) begin_waiting_edit();
}

ExportMaker::Make ExportService::prepare(const std::shared_ptr<Reload>& reload) {
    if (context_.lifecycle.draining()) return nullptr;
    // An edit leaves the file to the reload that waits for it.
    reload->source =
        reload->edit.change ? Source::current : std::exchange(source_, Source::current);
    if (reload->source == Source::current) {
        if (!apply_edit(*reload)) return nullptr;
    } else if (!load(*reload)) {
        return nullptr;
    } else {
        not_restored_.clear();
    }
    if (reload->edit.change) reload->renewed = renewed_by(context_.options, reload->options);
    reload->before = context_.exports.snapshot();
    reload->not_restored = not_restored_;
    const bool same_devices = reload->options.devices == context_.options.devices;
    return [this, reload, same_devices](const std::stop_token& stop) {
        context_.devices.set_options(reload->options.devices);
        if (reload->edit.begin) {
            if (std::string why = reload->edit.begin(stop); !why.empty()) {
                return MadeExports{.exports = {}, .problems = {std::move(why)}};
            }
        }
        VolumeLife life = volume_life(stop);
        life.restores_later = true;
        life.not_restored = reload->not_restored;
        life.renewed = reload->renewed;
        life.renaming = reload->edit.renames;
        life.same_devices = same_devices;
        MadeExports made =
            make_exports(reload->options.exports, context_.devices, *reload->before, life);
        reload->restores = std::ranges::any_of(made.unfilled, [&](const auto& each) {
            const std::string& name = reload->edit.restores;
            return !name.empty() && each.exported->info.name == name;
        });
        if (reload->edit.change) store_edit(*reload, made);
        return made;
    };
}

void ExportService::store_edit(Reload& reload, MadeExports& made) const {
    // The export that the edit adds cannot have the contents that are kept for it.
    for (const MadeExports::Refused& each : made.refused) {
        if (reload.not_restored.contains(each.name)) continue;
        if (std::ranges::find(refused_, each.name, &MadeExports::Refused::name) == refused_.end()) {
            made.problems.push_back(each.why);
        }
    }
    if (!made.problems.empty() || !reload.edit.store || reload.restores) return;
    if (reload.renewed) context_.retained.drop_earlier(*reload.renewed);
    std::string why = reload.edit.store();
    if (why.empty()) return;
    if (reload.edit.begin_is_final) {
        reload.not_stored = std::move(why);
    } else {
        made.problems.push_back(std::move(why));
    }
}

// Returns false if it cannot be made, which is reported.
bool ExportService::apply_edit(Reload& reload) const {
    reload.options.exports.reserve(context_.options.exports.size() + 1);  // an edit may add one
    reload.options = context_.options;
    const Edit& edit = reload.edit;
    if (!edit.change) return true;
    Problems problems;
    if (std::string why = edit.change(reload.options); !why.empty()) {
        problems.push_back(std::move(why));
    } else if (edit.adds) {
        check(reload, problems);
    } else {
        reload.commit = check_(reload.options, problems);
    }
    if (problems.empty()) return true;
    edit.done(problems.front());
    return false;
}

// Adds what the new options contradict.
void ExportService::check(Reload& reload, Problems& problems) const {
    const config::Options& options = reload.options;
    if (auto contradiction = config::rules::contradiction(options)) {
        problems.push_back(*std::move(contradiction));
    }
    if (problems.empty()) reload.commit = check_(options, problems);
}

// Returns false if the configuration has a problem. The options are unchanged then.
bool ExportService::load(Reload& reload) const {
    config::Loaded loaded = config::load_file(*context_.command.config_file);
    Problems problems;
    for (const auto& each : loaded.problems) problems.push_back(each.text());
    if (problems.empty()) {
        context_.command.overrides.apply_to(loaded.options);
        keep_run_time_exports(context_.options, loaded.options, problems);
    }
    reload.options = std::move(loaded.options);
    if (problems.empty()) check(reload, problems);
    if (!problems.empty()) {
        refuse(problems);
        return false;
    }
    return true;
}

void ExportService::refuse(const std::vector<std::string>& problems) const {
    for (const std::string& each : problems) spdlog::error("{}", each);
    spdlog::error("SIGHUP: the configuration is unchanged");
    context_.supervision.notify("READY=1");
}

void ExportService::finish(const std::shared_ptr<Reload>& reload, MadeExports made) {
    if (context_.lifecycle.draining()) return;  // `done` is destroyed uncalled, which reports it
    if (!made.problems.empty()) {
        fail(*reload, made.problems);
        made.exports.clear();
        when_remade_();
        return;
    }
    std::vector<MadeExports::Unfilled> unfilled = std::exchange(made.unfilled, {});
    apply(*reload, std::move(made));
    restore(std::move(unfilled), reload->edit);
    when_remade_();
    finish_taking_over(workers_.workers(), *context_.exports.snapshot(),
                       context_.retained.mappings.get());
    log_changes(*reload);
    if (!reload->not_stored.empty()) spdlog::error("{}", reload->not_stored);
    // The loop may call this after the destruction of this object, but not of the context.
    apply_to_sessions([&context = context_, reload] {
        if (reload->source == Source::file) {
            spdlog::info("SIGHUP: {} exports are offered now", context.options.exports.size());
            context.supervision.notify_ready(any_keeps(context.options.exports));
        }
        if (reload->edit.done && !reload->restores) reload->edit.done(reload->not_stored);
    });
    remove_failed();  // last: it starts a job, which uses the options of the devices
}

void ExportService::restore(std::vector<MadeExports::Unfilled> unfilled, const Edit& edit) {
    for (MadeExports::Unfilled& each : unfilled) {
        GPUNBD_ASSERT(restore_ && each.closure && !each.exported->volume->complete(),
                      "an export is closed and incomplete while it is restored");
        const std::shared_ptr<const Export> exported = each.exported;
        const bool is_of_edit = !edit.restores.empty() && exported->info.name == edit.restores;
        const auto restoring =
            std::make_shared<Restoring>(Restoring{.unfilled = std::move(each),
                                                  .store = is_of_edit ? edit.store : nullptr,
                                                  .done = is_of_edit ? edit.done : nullptr,
                                                  .created = is_of_edit,
                                                  .counted = restoring_});
        restore_(exported, [&io = context_.io, weak = std::weak_ptr(self_),
                            restoring](const std::string& why_not) {
            asio::post(io, [weak, restoring, why_not] {
                const auto self = weak.lock();
                if (!self) return;
                why_not.empty() ? (*self)->offer(restoring) : (*self)->withdraw(restoring, why_not);
            });
        });
    }
}

// Makes what waits for the export: its clones in the configuration, and its block device.
void ExportService::offer(const std::shared_ptr<Restoring>& restored) {
    // If the server ends before the options of a new export are stored, the next one frees
    // incomplete contents, but would keep complete ones for keeping.grace.
    if (!restored->created) restored->unfilled.exported->volume->set_complete();
    enqueue_first({.change = [](config::Options&) { return std::string(); },
                   .begin = [restored](const std::stop_token& /*stop*/) -> std::string {
                       restored->unfilled.exported->volume->set_complete();
                       return {};
                   },
                   .store = [this, restored]() -> std::string {
                       if (restored->created) {
                           const auto& name = restored->unfilled.exported->info.name;
                           context_.retained.drop_earlier(name);
                       }
                       std::string why = restored->store ? restored->store() : std::string();
                       if (why.empty()) restored->unfilled.closure.reset();
                       return why;
                   },
                   .done =
                       [this, restored](const std::string& why_not) {
                           // Problems of other exports do not concern an export of the file.
                           if (!why_not.empty() && restored->store) {
                               return withdraw(restored, why_not);
                           }
                           restored->unfilled.closure.reset();
                           if (restored->done) restored->done({});
                       }});
}

// Removes an export that was created at run time, and refuses one of the file until that is read
// again.
void ExportService::withdraw(const std::shared_ptr<Restoring>& restored, const std::string& why) {
    GPUNBD_ASSERT(restored->unfilled.exported, "an export that cannot be restored fails once");
    const Export& failed = *restored->unfilled.exported;
    restored->problem = fmt::format("export {}: {}", config::in_quotes(failed.info.name), why);
    restored->name = failed.info.name;
    restored->volume = failed.volume;
    storage::LogLine(spdlog::level::err)
        .with("export", restored->name)
        .say("{}", restored->problem);
    restored->unfilled.exported.reset();  // which has the memory
    remove_failed(restored);
}

void ExportService::remove_failed(const std::shared_ptr<Restoring>& failed) {
    enqueue_first({.change = [this, failed](config::Options& all) -> std::string {
                       const auto served = context_.exports.find(failed->name);
                       if (!served || served->volume != failed->volume.lock()) return {};
                       if (failed->created) {
                           all.exports.erase_if([&](const config::ExportOptions& each) {
                               return each.name == failed->name && each.origin.run_time;
                           });
                       } else {
                           not_restored_[failed->name] = failed->problem;
                       }
                       return {};
                   },
                   .done =
                       [this, failed](const std::string& why_not) {
                           // Then it is still there, closed and without its contents.
                           if (!why_not.empty()) not_removed_.push_back(failed);
                           if (auto done = std::exchange(failed->done, nullptr)) {
                               done(failed->problem);
                           }
                       }});
}

void ExportService::remove_failed() {
    for (const auto& each : std::exchange(not_removed_, {})) remove_failed(each);
}

void ExportService::fail(const Reload& reload, const std::vector<std::string>& problems) {
    if (reload.edit.done) reload.edit.done(problems.front());
    if (reload.source == Source::file) {
        refuse(problems);
    } else if (reload.edit.by_client) {
        for (const std::string& each : problems) ClientLine(spdlog::level::err).say("{}", each);
    } else {
        for (const std::string& each : problems) spdlog::error("{}", each);
    }
    context_.devices.set_options(context_.options.devices);
}

void ExportService::apply(Reload& reload, MadeExports made) {
    // The connection that needs a channel reports its failure.
    if (context_.protects_swap) warm_up(workers_.workers(), made.exports);
    replace_exports(reload, made);
    refused_ = std::move(made.refused);
    config::Options& options = context_.options;
    options.exports = std::move(reload.options.exports);
    options.devices = reload.options.devices;
    options.tls = reload.options.tls;
    options.keeping.grace = reload.options.keeping.grace;
    if (reload.commit) reload.commit();
}

// Counters are renamed first, so that a status never has the new name without them, and again for
// clients that connected in between.
void ExportService::replace_exports(const Reload& reload, MadeExports& made) const {
    const auto rename_counters = [&] {
        if (!reload.edit.renames) return;
        for (const auto& worker : workers_.workers()) {
            worker->rename_counters(reload.edit.renames->from, reload.edit.renames->to);
        }
    };
    rename_counters();
    context_.exports.replace(std::move(made.exports), templates_in(reload.options.exports));
    rename_counters();
}

void ExportService::log_changes(const Reload& reload) const {
    const Unchanged unchanged =
        reload.source == Source::current ? Unchanged::omit : Unchanged::report;
    for (const ReloadLine& line :
         report_exports(*reload.before, *context_.exports.snapshot(), unchanged)) {
        storage::LogLine(line.warning ? spdlog::level::warn : spdlog::level::info)
            .with("export", line.name)
            .say("{}", line.text);
    }
    std::vector<std::string> waiting = keys_that_wait(context_.options, reload.options);
    for (const std::string& id : context_.devices.opened_otherwise()) {
        waiting.push_back("devices: " + id);
    }
    if (waiting.empty()) return;
    spdlog::warn("reload: changes of {} take effect at the next start", fmt::join(waiting, ", "));
}

// Calls `then` on this thread once the sessions of all workers use the new options. The memory for
// that is allocated now. A stopped worker destroys its call, and with it `then`.
void ExportService::apply_to_sessions(std::function<void()> then) {
    struct Applied {
        std::function<void()> then;
        std::atomic<std::size_t> left;
        std::shared_ptr<WaitMemory> memory = std::make_shared<WaitMemory>();
    };
    const auto& workers = workers_.workers();
    const auto applied = std::make_shared<Applied>(std::move(then), workers.size());
    for (const auto& worker : workers) {
        worker->check_access([&io = context_.io, applied] {
            GPUNBD_ASSERT(applied->left != 0, "each worker reports its sessions once");
            if (--applied->left != 0) return;
            asio::post(io, within(applied->memory, [applied] { applied->then(); }));
        });
    }
}

VolumeLife ExportService::volume_life(const std::stop_token& stop) const {
    return {.stop = stop,
            .disposal = &context_.disposal,
            .contents = context_.retained.contents.get(),
            .channels = channel_options(context_.options.pipeline),
            .open_channels = [this](const std::vector<storage::Device*>& devices) {
                for (auto& opened : open_channels(workers_.workers(), devices)) opened.get();
            }};
}

void ExportService::log_progress() {
    context_.progress.watch([this] { return busy() || context_.lifecycle.draining(); });
}

}  // namespace gpunbd::server
