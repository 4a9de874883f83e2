// Creates the exports at the start, and again when their options change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "server/base/expected.hpp"
#include "server/base/task.hpp"
#include "server/base/task_group.hpp"
#include "server/daemon/export_factory.hpp"
#include "server/daemon/saves.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

class ExportService final : public Service {
 public:
    // ServiceList::reload().
    using CheckReload = std::function<Commit(const config::Options& next, Problems& problems)>;
    ExportService(ServerContext& context, const WorkerPool& workers, Saves& saves,
                  CheckReload check);

    void resume() override;
    void drain() override;  // cancels the edit in progress, and those that wait
    void stop() override;

    // Makes the first exports, then calls `serve`. If either fails, stops the event loop with
    // Lifecycle::failure set.
    using Serve = std::function<void()>;
    void make_first(Serve serve);
    // Reads the configuration file again, after a hand-over in progress.
    void reload_file();
    // Creates the exports that could not be created before.
    void remake() { tasks_.start(make_again()); }

    // A change of the options, other than by the file, is a coroutine of its owner: begin(), a
    // change of ExportEdit::options, check(), make(), publish(). Edits are made one after the
    // other. An error is the answer to the request for the edit.
    //
    // first: ahead of those that wait, and however many they are: it ends an edit that has begun.
    enum class Place : std::uint8_t { last, first };
    // Waits for the turn of the edit.
    Task<Expected<ExportEdit>> begin(Place place = Place::last);
    // Whether the services can apply the options, which may have to follow the rules for new names.
    enum class Names : std::uint8_t { are_known, are_new };
    Expected<void> check(ExportEdit& edit, Names names = Names::are_known) const;
    // Calls `work` on the thread that makes exports, and ends the edit if that fails. The work
    // calls make_exports(), and stores the change, in the order that the change requires.
    using Work = std::function<Expected<void>(const std::stop_token&)>;
    Task<Expected<void>> make(ExportEdit& edit, const Work& work);
    Expected<void> make_exports(ExportEdit& edit, const std::stop_token& stop) const;
    // Before the options of an edit are stored: frees kept contents that the export that it adds
    // does not take over.
    void drop_earlier(const ExportEdit& edit) const;
    // Offers the exports, which ends the edit. The coroutine then waits until the sessions follow.
    using Published = Awaited<std::vector<std::monostate>>;
    Published publish(ExportEdit& edit);
    // Both, with the wait; an edit without `work` only makes the exports.
    Task<Expected<void>> make_and_publish(ExportEdit& edit, const Work& work);
    Task<Expected<void>> make_and_publish(ExportEdit& edit);
    // Restores a new export from its file and opens it, after publish(). It is closed until then.
    // `store` is called when it is complete. If either fails, the export is removed.
    using Store = std::function<Expected<void>()>;
    Task<Expected<void>> restore(MadeExports::Unfilled unfilled, Store store);

    // Whether exports are being made.
    bool busy() const { return turn_taken_; }
    // Whether they are, or will be made again next. A change that waits may begin before.
    bool has_work() const { return busy() || remake_ != nullptr; }
    // Exports that are not offered because their kept contents cannot be taken over.
    const std::vector<MadeExports::Refused>& refused() const { return refused_; }
    // Whether a new export is being restored.
    bool restoring() const { return restoring_ != 0 || !not_removed_.empty(); }
    class Observer {
     public:
        // After each attempt to create exports again.
        virtual void exports_remade() {}
        // After each attempt, also that of make_first().
        virtual void exports_idle() {}

     protected:
        ~Observer() = default;
    };
    // It is destroyed later than this object is stopped.
    void add(Observer& observer) { observers_.push_back(&observer); }

 private:
    friend ExportEdit::EndTurn;
    class Waiting;
    // A new export that could not be restored.
    struct Failed {
        std::string name;
        std::string instance;
        std::string problem;
        bool created;  // at run time; otherwise it is one of the file
        std::shared_ptr<ExportUse::Closure> closure;
    };

    Task<> serve_first(Serve serve);
    void report_remade() const;
    void report_idle() const;
    Task<> make_again();
    Task<> restore_of_file(MadeExports::Unfilled unfilled);
    Task<Expected<void>> offer(MadeExports::Unfilled& restored, const Store& store);
    // If the removal fails, the export stays closed, and the next change of exports repeats it.
    Task<> remove(Failed failed);
    Expected<void> leave_out(const Failed& failed, config::Options& options);
    void remove_failed();
    ExportEdit::Turn take_turn();
    void end_turn() noexcept;
    void end(ExportEdit& edit);  // drops the exports that it has removed, and reports
    bool load(ExportEdit& edit) const;
    Problems problems_of(ExportEdit& edit, Names names) const;
    Task<Expected<void>> run(const Work& work);
    void fail(ExportEdit& edit, const std::string& why);
    void refuse(const std::vector<std::string>& problems) const;
    void apply(ExportEdit& edit);
    void replace_exports(ExportEdit& edit) const;
    void log_changes(const ExportEdit& edit) const;
    VolumeLife volume_life(const std::stop_token& stop) const;

    ServerContext& context_;
    const WorkerPool& workers_;
    Saves& saves_;
    const CheckReload check_;
    std::vector<Observer*> observers_;
    bool reads_file_ = false;  // the next make_again() does
    std::vector<MadeExports::Refused> refused_;
    bool turn_taken_ = false;
    std::deque<Waiting*> waiting_;
    Waiting* remake_ = nullptr;  // make_again(), which waits ahead of all edits
    std::size_t restoring_ = 0;
    std::vector<Failed> not_removed_;
    // Exports of the file that could not be restored, with the reasons, until it is read again.
    std::map<std::string, std::string> not_restored_;
    std::stop_source draining_;
    TaskGroup tasks_;
};

}  // namespace gpunbd::server
