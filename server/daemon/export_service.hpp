// Creates the exports at the start, and again when their options change.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/daemon/export_maker.hpp"
#include "server/daemon/server_admin_backend.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

class ExportService final : public Service {
 public:
    // ServiceList::reload().
    using CheckReload = std::function<Commit(const config::Options& next, Problems& problems)>;
    ExportService(ServerContext& context, const WorkerPool& workers, CheckReload check);

    void resume() override;
    void drain() override;  // cancels the job in progress
    void stop() override;

    // Makes the first exports, then calls `serve`. If either fails, stops the event loop with
    // Lifecycle::failure set.
    void make_first(std::function<void()> serve);
    // Reads the configuration file again, after a hand-over in progress.
    void reload_file();
    // Creates the exports that could not be created before.
    void remake() { enqueue({}); }
    // A change of the options, other than by the file. They take effect together with the exports
    // that they need, or not at all.
    struct Edit {
        // Changes the options, on the server's thread when the edit begins. Returns the reason why
        // it cannot be made; empty: it can.
        std::function<std::string(config::Options&)> change = {};
        bool adds = false;       // services have to check the new options
        bool by_client = false;  // its log lines are limited
        // On the thread that makes exports, before them: changes volumes. Returns the problem.
        std::function<std::string(const std::stop_token&)> begin = {};
        // On the thread that makes exports, after them: stores the change. Returns the problem.
        std::function<std::string()> store = {};
        // What begin() has changed stays: after a problem of store() the edit is in effect, too.
        bool begin_is_final = false;
        // The new export that the edit adds, if it has to be restored: store() and done() wait for
        // that, and the edit fails with it.
        std::string restores = {};
        // An export that change() gives another name. It keeps its contents, its connections and
        // its counters.
        std::optional<Renaming> renames = {};
        ServerAdminBackend::ChangeDone done = {};
    };
    // Edits are made one after the other.
    void edit(Edit edit);
    // Changes the options of one export. Those of the configuration last until the file is read
    // again.
    void change(const std::string& name, const ServerAdminBackend::Change& change,
                const ServerAdminBackend::ChangeDone& done);

    bool busy() const { return maker_.busy(); }
    // Exports that are not offered because their kept contents cannot be taken over.
    const std::vector<MadeExports::Refused>& refused() const { return refused_; }
    // Whether a new export is being restored.
    bool restoring() const { return restoring_.use_count() > 1; }
    // Sets the function that restores new exports. It calls `done` once, on any thread, with the
    // problem, if any. The contents become complete when the export is offered.
    using RestoreDone = std::function<void(std::string why_not)>;
    using Restore = std::function<void(const std::shared_ptr<const Export>&, RestoreDone done)>;
    void set_restore(Restore restore) { restore_ = std::move(restore); }
    // Sets the function to call after each attempt to create exports again.
    void when_remade(std::function<void()> call) { when_remade_ = std::move(call); }
    // Sets the function to call after each attempt, also that of make_first().
    void when_idle(std::function<void()> call) { when_idle_ = std::move(call); }

 private:
    // The options for the next creation of exports.
    enum class Source { current, file };
    struct Reload;

    // A new export that is being restored, until it is offered or withdrawn.
    struct Restoring;
    void restore(std::vector<MadeExports::Unfilled> unfilled, const Edit& edit);
    void offer(const std::shared_ptr<Restoring>& restored);
    void withdraw(const std::shared_ptr<Restoring>& restored, const std::string& why);
    // Removes an export after its restore has failed. If the removal fails, the export stays
    // closed, and the next change of exports repeats the removal.
    void remove_failed(const std::shared_ptr<Restoring>& failed);
    void remove_failed();
    void enqueue(Edit edit);
    void enqueue_first(Edit edit);
    void begin_waiting_edit();
    ExportMaker::Make prepare(const std::shared_ptr<Reload>& reload);
    bool apply_edit(Reload& reload) const;
    void store_edit(Reload& reload, MadeExports& made) const;
    bool load(Reload& reload) const;
    void check(Reload& reload, Problems& problems) const;
    void refuse(const std::vector<std::string>& problems) const;
    void finish(const std::shared_ptr<Reload>& reload, MadeExports made);
    void fail(const Reload& reload, const std::vector<std::string>& problems);
    void apply(Reload& reload, MadeExports made);
    void replace_exports(const Reload& reload, MadeExports& made) const;
    void log_changes(const Reload& reload) const;
    void apply_to_sessions(std::function<void()> then);
    VolumeLife volume_life(const std::stop_token& stop) const;
    void log_progress();

    ServerContext& context_;
    const WorkerPool& workers_;
    const CheckReload check_;
    std::function<void()> when_remade_;
    std::function<void()> when_idle_;
    Source source_ = Source::current;
    std::vector<MadeExports::Refused> refused_;
    std::deque<Edit> waiting_;
    Restore restore_;
    // Held once by each export that is being restored.
    const std::shared_ptr<const bool> restoring_ = std::make_shared<const bool>();
    std::vector<std::shared_ptr<Restoring>> not_removed_;  // see remove_failed()
    // Exports of the file that could not be restored, with the reasons, until it is read again.
    std::map<std::string, std::string> not_restored_;
    // Handlers that begin a waiting edit do nothing once this is gone.
    std::shared_ptr<ExportService*> self_ = std::make_shared<ExportService*>(this);
    ExportMaker maker_;
};

}  // namespace gpunbd::server
