#include "server/daemon/export_service.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

#include "config/client_clones.hpp"
#include "config/exports_by_name.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "server/base/line_limit.hpp"
#include "server/base/task_group.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/swap_protection.hpp"
#include "server/daemon/takeover.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/exports/reload_report.hpp"
#include "server/nbd/all_workers.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t max_waiting_edits = 1024;

// Adds the exports that were created at run time to those of the file.
void keep_run_time_exports(const config::Options& running, config::Options& loaded,
                           std::vector<std::string>& problems) {
    const config::ExportsByName earlier(running.exports);
    for (auto each = loaded.exports.begin(); each != loaded.exports.end(); ++each) {
        const config::ExportOptions* const twin = earlier.find(each->name);
        // An export keeps the size that it got at run time, unless the file has a new size.
        if (twin != nullptr && twin->provenance.resized &&
            each->size == twin->provenance.configured_size) {
            config::ExportOptions& resized = loaded.exports.edit(each);
            resized.size = twin->size;
            resized.provenance = twin->provenance;
        }
    }
    const config::ExportsByName of_file(loaded.exports);
    for (const config::ExportOptions& each : running.exports) {
        const config::ExportOptions* const twin = of_file.find(each.name);
        if (!each.provenance.run_time) continue;
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

// The wait of an edit for its turn.
class ExportService::Waiting : public Awaited<> {
 public:
    enum class Kind : std::uint8_t { edit, first_edit, remake };
    Waiting(ExportService& service, Kind kind) : Awaited(service.context_.io), service_(service) {
        switch (kind) {
            case Kind::edit:
                service.waiting_.push_back(this);
                break;
            case Kind::first_edit:
                service.waiting_.push_front(this);
                break;
            case Kind::remake:
                service.remake_ = this;
                break;
        }
    }
    ~Waiting() {
        std::erase(service_.waiting_, this);
        if (service_.remake_ == this) service_.remake_ = nullptr;
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    // The coroutine continues later, and looks whether another one was faster.
    void wake() {
        if (!std::exchange(woken_, true)) giver()();
    }

 private:
    ExportService& service_;
    bool woken_ = false;
};

void ExportEdit::EndTurn::operator()(ExportService* service) const noexcept { service->end_turn(); }

ExportService::ExportService(ServerContext& context, const WorkerPool& workers, Saves& saves,
                             CheckReload check)
    : context_(context),
      workers_(workers),
      saves_(saves),
      check_(std::move(check)),
      tasks_(context.io) {}

void ExportService::resume() {
    if (!context_.lifecycle.refuses_changes()) remove_failed();
    if (reads_file_ && !has_work()) reload_file();
}

void ExportService::drain() {
    draining_.request_stop();
    for (Waiting* const each : waiting_) each->wake();  // they see the phase
    if (remake_ != nullptr) remake_->wake();
}

void ExportService::stop() { tasks_.clear(); }

void ExportService::make_first(Serve serve) { tasks_.start(serve_first(std::move(serve))); }

Task<> ExportService::serve_first(Serve serve) {
    try {
        MadeExports made;
        ExportEdit::Turn turn = take_turn();
        const Work work = [&](const std::stop_token& stop) -> Expected<void> {
            made = server::make_exports(context_.options.exports, context_.devices, {},
                                        volume_life(stop));
            return {};
        };
        if (const auto worked = co_await run(work); !worked) made.problems = {worked.error()};
        turn.reset();
        if (context_.lifecycle.draining()) {
            report_idle();
            co_return;
        }
        if (!made.problems.empty()) {
            const std::string last = std::move(made.problems.back());
            made.problems.pop_back();
            for (const std::string& each : made.problems) spdlog::error("{}", each);
            throw std::runtime_error(last);
        }
        context_.exports.replace(std::move(made.exports), templates_in(context_.options.exports));
        refused_ = std::move(made.refused);
        serve();
        finish_taking_over(workers_.workers(), *context_.exports.snapshot(),
                           context_.kept.mappings.get());
        report_idle();
    } catch (...) {
        context_.lifecycle.failure = std::current_exception();
        context_.io.stop();
    }
}

void ExportService::reload_file() {
    reads_file_ = true;
    if (context_.lifecycle.phase() == Phase::handing_over) return;  // resume() continues
    context_.supervision.notify(reloading_message());
    if (has_work()) {
        spdlog::info("SIGHUP: the file will be read after the current exports are made");
    }
    remake();
}

// Reads the file as well, if that was requested meanwhile. One that waits does the work of all that
// are requested until its turn.
Task<> ExportService::make_again() {
    if (remake_ != nullptr) co_return;
    while (turn_taken_ && !context_.lifecycle.draining()) {
        Waiting waiting(*this, Waiting::Kind::remake);
        co_await waiting;
    }
    if (context_.lifecycle.draining()) co_return;
    ExportEdit edit{.turn = take_turn(), .options = {}};
    if (std::exchange(reads_file_, false)) {
        edit.source = ExportEdit::Source::file;
        if (!load(edit)) co_return;
        not_restored_.clear();
    } else {
        edit.source = ExportEdit::Source::current;
        edit.options = context_.options;
    }
    if (const auto done = co_await make_and_publish(edit); !done) co_return;
    if (edit.source != ExportEdit::Source::file) co_return;
    spdlog::info("SIGHUP: {} exports are offered now", context_.options.exports.size());
    context_.supervision.notify_ready(any_keeps(context_.options.exports));
}

// Returns false if the configuration has a problem. The options are unchanged then.
bool ExportService::load(ExportEdit& edit) const {
    config::Loaded loaded = config::load_file(*context_.command.config_file);
    Problems problems;
    for (const auto& each : loaded.problems) problems.push_back(each.text());
    if (problems.empty()) {
        context_.command.overrides.apply_to(loaded.options);
        keep_run_time_exports(context_.options, loaded.options, problems);
    }
    edit.options = std::move(loaded.options);
    if (problems.empty()) problems = problems_of(edit, Names::are_new);
    if (!problems.empty()) refuse(problems);
    return problems.empty();
}

Task<Expected<ExportEdit>> ExportService::begin(Place place) {
    const Lifecycle& lifecycle = context_.lifecycle;
    auto kind = place == Place::first ? Waiting::Kind::first_edit : Waiting::Kind::edit;
    if (place == Place::last && !lifecycle.refuses_changes()) {
        if (lifecycle.phase() == Phase::starting) {
            co_return "exports are being made; try again later";
        }
        if (has_work() && waiting_.size() >= max_waiting_edits) {
            co_return "too many changes of exports are waiting; try again later";
        }
    }
    while (has_work() && !lifecycle.refuses_changes()) {
        Waiting waiting(*this, kind);
        co_await waiting;
        kind = Waiting::Kind::first_edit;
    }
    if (lifecycle.refuses_changes()) {
        if (!waiting_.empty()) waiting_.front()->wake();  // it is refused, too
        co_return std::get<NotDone>(lifecycle.refusal()).why;
    }
    ExportEdit edit{.turn = take_turn(), .options = {}};
    edit.options.exports.reserve(context_.options.exports.size() + 1);  // an edit may add one
    edit.options = context_.options;
    co_return std::move(edit);
}

ExportEdit::Turn ExportService::take_turn() {
    GPUNBD_ASSERT(!turn_taken_, "exports are changed by one edit at a time");
    turn_taken_ = true;
    return ExportEdit::Turn(this);
}

void ExportService::end_turn() noexcept {
    turn_taken_ = false;
    if (remake_ != nullptr) {
        remake_->wake();
    } else if (!waiting_.empty()) {
        waiting_.front()->wake();
    }
}

void ExportService::end(ExportEdit& edit) {
    edit.before.reset();  // it has removed exports
    report_idle();
}

Expected<void> ExportService::check(ExportEdit& edit, Names names) const {
    Problems problems = problems_of(edit, names);
    if (problems.empty()) return {};
    return std::move(problems.front());
}

Service::Problems ExportService::problems_of(ExportEdit& edit, Names names) const {
    Problems problems;
    if (names == Names::are_new) {
        if (auto contradiction = config::rules::contradiction(edit.options)) {
            problems.push_back(*std::move(contradiction));
        }
    }
    if (problems.empty()) edit.commit = check_(edit.options, problems);
    return problems;
}

// Returns the exception of the work, too.
Task<Expected<void>> ExportService::run(const Work& work) {
    Expected<void> done;
    const OnThread::Work call = [&](const std::stop_token& stop) { done = work(stop); };
    context_.progress.watch([this] { return busy() || context_.lifecycle.draining(); });
    try {
        OnThread thread(context_.io, "exports", draining_, call);
        co_await thread;
    } catch (const std::exception& error) {
        done = std::string(error.what());
    }
    co_return done;
}

Task<Expected<void>> ExportService::make(ExportEdit& edit, const Work& work) {
    if (edit.source == ExportEdit::Source::caller) {
        edit.renewed = renewed_by(context_.options, edit.options);
    }
    edit.before = context_.exports.snapshot();
    edit.not_restored = not_restored_;
    edit.same_devices = edit.options.devices == context_.options.devices;
    const Work with_devices = [&](const std::stop_token& stop) {
        context_.devices.set_options(edit.options.devices);
        return work(stop);
    };
    Expected<void> done = co_await run(with_devices);
    if (context_.lifecycle.draining()) {
        edit.turn.reset();
        edit.made = {};
        end(edit);
        done = std::get<NotDone>(context_.lifecycle.refusal()).why;
    } else if (!done) {
        fail(edit, done.error());
    }
    co_return done;
}

Expected<void> ExportService::make_exports(ExportEdit& edit, const std::stop_token& stop) const {
    VolumeLife life = volume_life(stop);
    life.restores_later = true;
    life.not_restored = edit.not_restored;
    life.renewed = edit.renewed;
    life.renaming = edit.renaming;
    life.same_devices = edit.same_devices;
    MadeExports& made = edit.made;
    made = server::make_exports(edit.options.exports, context_.devices, *edit.before, life);
    if (edit.source == ExportEdit::Source::caller) {
        // The export that the edit adds cannot have the contents that are kept for it.
        for (const MadeExports::Refused& each : made.refused) {
            if (edit.not_restored.contains(each.name)) continue;
            if (std::ranges::find(refused_, each.name, &MadeExports::Refused::name) ==
                refused_.end()) {
                made.problems.push_back(each.why);
            }
        }
    }
    if (made.problems.empty()) return {};
    return made.problems.front();
}

void ExportService::drop_earlier(const ExportEdit& edit) const {
    if (edit.renewed) context_.kept.drop_earlier(*edit.renewed);
}

void ExportService::refuse(const std::vector<std::string>& problems) const {
    for (const std::string& each : problems) spdlog::error("{}", each);
    spdlog::error("SIGHUP: the configuration is unchanged");
    context_.supervision.notify("READY=1");
}

void ExportService::fail(ExportEdit& edit, const std::string& why) {
    edit.turn.reset();
    Problems problems = std::exchange(edit.made, {}).problems;
    if (problems.empty()) problems.push_back(why);
    if (edit.source == ExportEdit::Source::file) {
        refuse(problems);
    } else if (edit.by_client) {
        for (const std::string& each : problems) ClientLine(spdlog::level::err).log("{}", each);
    } else {
        for (const std::string& each : problems) spdlog::error("{}", each);
    }
    context_.devices.set_options(context_.options.devices);
    report_remade();
    end(edit);
}

ExportService::Published ExportService::publish(ExportEdit& edit) {
    edit.turn.reset();  // the next edit begins later
    std::vector<MadeExports::Unfilled> unfilled = std::exchange(edit.made.unfilled, {});
    apply(edit);
    for (MadeExports::Unfilled& each : unfilled) tasks_.start(restore_of_file(std::move(each)));
    report_remade();
    finish_taking_over(workers_.workers(), *context_.exports.snapshot(),
                       context_.kept.mappings.get());
    log_changes(edit);
    const auto apply_to_sessions = [](Worker& worker, auto done) {
        worker.check_access([done] { done({}); });
    };
    auto applied = all_workers<std::monostate>(context_.io, workers_.workers(), apply_to_sessions);
    end(edit);
    remove_failed();  // last: it begins an edit
    return applied;
}

Task<Expected<void>> ExportService::make_and_publish(ExportEdit& edit, const Work& work) {
    Expected<void> done = co_await make(edit, work);
    if (done) co_await publish(edit);
    co_return done;
}

Task<Expected<void>> ExportService::make_and_publish(ExportEdit& edit) {
    const Work work = [&](const std::stop_token& stop) { return make_exports(edit, stop); };
    Expected<void> done = co_await make_and_publish(edit, work);
    co_return done;
}

Task<> ExportService::restore_of_file(MadeExports::Unfilled unfilled) {
    co_await restore(std::move(unfilled), nullptr);
}

Task<Expected<void>> ExportService::restore(MadeExports::Unfilled unfilled, Store store) {
    GPUNBD_ASSERT(unfilled.closure && !unfilled.exported->volume->complete(),
                  "an export is closed and incomplete while it is restored");
    const Counted restoring(restoring_);
    const Outcome outcome = co_await saves_.restore_new(unfilled.exported);
    Expected<void> done;
    if (const auto* const refusal = std::get_if<NotDone>(&outcome)) {
        done = refusal->why;
    } else {
        done = co_await offer(unfilled, store);
    }
    if (done || context_.lifecycle.draining()) co_return done;
    const auto& info = unfilled.exported->info;
    const std::string problem =
        fmt::format("export {}: {}", config::in_quotes(info.name), done.error());
    Failed failed{.name = info.name,
                  .instance = info.instance,
                  .problem = problem,
                  .created = store != nullptr,
                  .closure = std::move(unfilled.closure)};
    storage::LogLine(spdlog::level::err).with("export", failed.name).log("{}", problem);
    unfilled.exported.reset();  // which has the memory
    co_await remove(std::move(failed));
    co_return problem;
}

// Makes what waits for the export: its clones in the configuration, and its block device.
Task<Expected<void>> ExportService::offer(MadeExports::Unfilled& restored, const Store& store) {
    storage::Volume& volume = *restored.exported->volume;
    // If the server ends before the options of a new export are stored, the next one frees
    // incomplete contents, but would keep complete ones for keeping.grace.
    if (!store) volume.set_complete();
    Expected<ExportEdit> edit = co_await begin(Place::first);
    Expected<void> done = edit ? check(*edit) : edit.error();
    const Work work = [&](const std::stop_token& stop) {
        volume.set_complete();
        Expected<void> made = make_exports(*edit, stop);
        if (made && store) {
            context_.kept.drop_earlier(restored.exported->info.name);
            made = store();
        }
        if (made) restored.closure.reset();
        return made;
    };
    if (done) done = co_await make_and_publish(*edit, work);
    // Problems of other exports do not concern an export of the file.
    if (!store) done = {};
    if (done) restored.closure.reset();
    co_return done;
}

// Removes an export that was created at run time, and refuses one of the file until that is read
// again.
Task<> ExportService::remove(Failed failed) {
    const Counted restoring(restoring_);
    Expected<ExportEdit> edit = co_await begin(Place::first);
    Expected<void> done = edit ? leave_out(failed, edit->options) : edit.error();
    if (done) done = check(*edit);
    if (done) done = co_await make_and_publish(*edit);
    // Then it is still there, closed and without its contents.
    if (!done) not_removed_.push_back(std::move(failed));
}

Expected<void> ExportService::leave_out(const Failed& failed, config::Options& options) {
    const auto served = context_.exports.find(failed.name);
    if (!served || served->info.instance != failed.instance) return {};
    if (failed.created) {
        options.exports.erase_if([&](const config::ExportOptions& each) {
            return each.name == failed.name && each.provenance.run_time;
        });
    } else {
        not_restored_[failed.name] = failed.problem;
    }
    return {};
}

void ExportService::remove_failed() {
    for (Failed& each : std::exchange(not_removed_, {})) tasks_.start(remove(std::move(each)));
}

void ExportService::apply(ExportEdit& edit) {
    // The connection that needs a channel reports its failure.
    if (context_.protects_swap) warm_up(workers_.workers(), edit.made.exports);
    replace_exports(edit);
    refused_ = std::move(edit.made.refused);
    config::Options& options = context_.options;
    options.exports = std::move(edit.options.exports);
    options.devices = edit.options.devices;
    options.tls = edit.options.tls;
    options.keeping.grace = edit.options.keeping.grace;
    if (edit.commit) edit.commit();
}

// Counters are renamed first, so that a status never has the new name without them, and again for
// clients that connected in between.
void ExportService::replace_exports(ExportEdit& edit) const {
    const auto rename_counters = [&] {
        if (!edit.renaming) return;
        for (const auto& worker : workers_.workers()) {
            worker->rename_counters(edit.renaming->from, edit.renaming->to);
        }
    };
    rename_counters();
    context_.exports.replace(std::move(edit.made.exports), templates_in(edit.options.exports));
    rename_counters();
}

void ExportService::log_changes(const ExportEdit& edit) const {
    const Unchanged unchanged =
        edit.source == ExportEdit::Source::file ? Unchanged::report : Unchanged::omit;
    for (const ReloadLine& line :
         report_exports(*edit.before, *context_.exports.snapshot(), unchanged)) {
        storage::LogLine(line.warning ? spdlog::level::warn : spdlog::level::info)
            .with("export", line.name)
            .log("{}", line.text);
    }
    std::vector<std::string> waiting = keys_that_wait(context_.options, edit.options);
    for (const std::string& id : context_.devices.opened_otherwise()) {
        waiting.push_back("devices: " + id);
    }
    if (waiting.empty()) return;
    spdlog::warn("reload: changes of {} take effect at the next start", fmt::join(waiting, ", "));
}

void ExportService::report_remade() const {
    for (Observer* const each : observers_) each->exports_remade();
}

void ExportService::report_idle() const {
    for (Observer* const each : observers_) each->exports_idle();
}

VolumeLife ExportService::volume_life(const std::stop_token& stop) const {
    return {.stop = stop,
            .disposal = &context_.disposal,
            .contents = context_.kept.contents.get(),
            .channels = channel_options(context_.options.pipeline),
            .origin_locks = &context_.kept.origin_locks,
            .open_channels = [this](const std::vector<storage::Device*>& devices) {
                for (auto& opened : open_channels(workers_.workers(), devices)) opened.get();
            }};
}

}  // namespace gpunbd::server
