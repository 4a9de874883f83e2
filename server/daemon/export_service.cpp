#include "server/daemon/export_service.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <stdexcept>
#include <utility>
#include <variant>

#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "server/daemon/finish_taking_over.hpp"
#include "server/daemon/keep_option.hpp"
#include "server/daemon/warm_up.hpp"
#include "server/exports/reload_report.hpp"
#include "server/nbd/wait_memory.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace asio = boost::asio;

struct ExportService::Reload {
    ChangeOptions change;                 // of the current options; may be empty
    ServerAdminBackend::ChangeDone done;  // may be empty
    Source source = Source::current;
    config::Options options = {};
    Commit commit = {};
    std::shared_ptr<const ExportRegistry::Exports> before = {};
};

ExportService::ExportService(ServerContext& context, const WorkerPool& workers, CheckReload check)
    : context_(context), workers_(workers), check_(std::move(check)), maker_(context.io) {}

void ExportService::resume() {
    if (source_ == Source::file && !busy()) reload_file();
}

void ExportService::drain() { maker_.give_up(); }

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
                               context_.exports.replace(std::move(made.exports));
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
    if (context_.lifecycle.phase == Phase::handing_over) return;  // resume() continues
    context_.supervision.notify(reloading_message());
    if (busy()) {
        spdlog::info("SIGHUP: the file will be read after the current exports are made");
    }
    enqueue({}, {});
}

void ExportService::change(const std::string& name, const ServerAdminBackend::Change& change,
                           const ServerAdminBackend::ChangeDone& done) {
    const Phase phase = context_.lifecycle.phase;
    if (phase == Phase::draining || phase == Phase::handing_over) {
        return done(std::get<NotDone>(outcome_of_ending()).why);
    }
    if (phase == Phase::starting || busy()) {
        return done("exports are being made; try again later");
    }
    const auto find = [name](auto& exports) {
        return std::find_if(exports.begin(), exports.end(),
                            [&](const config::ExportOptions& each) { return each.name == name; });
    };
    if (find(context_.options.exports) == context_.options.exports.end()) {
        return done("the export does not exist any more");
    }
    enqueue(
        [find, change](config::Options& options) {
            const auto found = find(options.exports);
            if (found != options.exports.end()) change(*found);
        },
        done);
}

// The maker keeps only the last waiting job, so each job includes the work of the earlier ones. A
// job with a change never waits: change() submits none while the maker is busy.
void ExportService::enqueue(ChangeOptions change, ServerAdminBackend::ChangeDone done) {
    const auto reload =
        std::make_shared<Reload>(Reload{.change = std::move(change), .done = std::move(done)});
    maker_.submit({.prepare = [this, reload] { return prepare(reload); },
                   .done =
                       [this, reload](MadeExports made) {
                           finish(reload, std::move(made));
                           when_idle_();
                       }});
    log_progress();
}

ExportMaker::Make ExportService::prepare(const std::shared_ptr<Reload>& reload) {
    if (context_.lifecycle.draining()) return nullptr;
    reload->source = std::exchange(source_, Source::current);
    if (reload->source == Source::current) {
        reload->options = context_.options;
        if (reload->change) reload->change(reload->options);
    } else if (!load(*reload)) {
        return nullptr;
    }
    reload->before = context_.exports.snapshot();
    return [this, reload](const std::stop_token& stop) {
        context_.devices.set_options(reload->options.devices);
        return make_exports(reload->options.exports, context_.devices, *reload->before,
                            volume_life(stop));
    };
}

// Returns false if the configuration has a problem. The options are unchanged then.
bool ExportService::load(Reload& reload) const {
    config::Loaded loaded = config::load_file(*context_.command.config_file);
    Problems problems;
    for (const auto& each : loaded.problems) problems.push_back(each.text());
    if (problems.empty()) {
        context_.command.overrides.apply_to(loaded.options);
        if (const auto misfit = config::rules::swap_misfit(loaded.options)) {
            problems.push_back(misfit->what);
        }
    }
    if (problems.empty()) reload.commit = check_(loaded.options, problems);
    if (!problems.empty()) {
        refuse(problems);
        return false;
    }
    reload.options = std::move(loaded.options);
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
    apply(*reload, std::move(made));
    when_remade_();
    finish_taking_over(workers_.workers(), *context_.exports.snapshot(),
                       context_.retained.mappings.get());
    log_changes(*reload);
    // The loop may call this after the destruction of this object, but not of the context.
    apply_to_sessions([&context = context_, reload] {
        if (reload->source == Source::file) {
            spdlog::info("SIGHUP: {} exports are offered now", reload->options.exports.size());
            context.supervision.notify_ready(any_keeps(context.options.exports));
        }
        if (reload->done) reload->done({});
    });
}

void ExportService::fail(const Reload& reload, const std::vector<std::string>& problems) {
    if (reload.done) reload.done(problems.front());
    if (reload.source == Source::file) {
        refuse(problems);
    } else {
        for (const std::string& each : problems) spdlog::error("{}", each);
    }
    context_.devices.set_options(context_.options.devices);
}

void ExportService::apply(const Reload& reload, MadeExports made) {
    // The connection that needs a channel reports its failure.
    if (context_.protects_swap) warm_up(workers_.workers(), made.exports);
    context_.exports.replace(std::move(made.exports));
    refused_ = std::move(made.refused);
    config::Options& options = context_.options;
    options.exports = reload.options.exports;
    options.devices = reload.options.devices;
    options.tls = reload.options.tls;
    options.keeping.grace = reload.options.keeping.grace;
    if (reload.commit) reload.commit();
}

void ExportService::log_changes(const Reload& reload) const {
    for (const ReloadLine& line : report_exports(*reload.before, *context_.exports.snapshot())) {
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
            if (--applied->left != 0) return;
            asio::post(io, within(applied->memory, [applied] { applied->then(); }));
        });
    }
}

VolumeLife ExportService::volume_life(const std::stop_token& stop) {
    return {
        .stop = stop, .disposal = &context_.disposal, .contents = context_.retained.contents.get()};
}

void ExportService::log_progress() {
    context_.progress.watch([this] { return busy() || context_.lifecycle.draining(); });
}

}  // namespace gpunbd::server
