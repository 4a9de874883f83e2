// Creates, removes and changes exports at the request of an administrator. Each request is one
// coroutine: it checks the request, makes the exports, stores the change for the next server,
// publishes the exports, and answers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "server/admin/model/admin_backend.hpp"
#include "server/base/expected.hpp"
#include "server/base/task.hpp"
#include "server/base/task_group.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/saves.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/state_folder.hpp"

namespace gpunbd::server {

class RunTimeExports final : public Service {
 public:
    RunTimeExports(ServerContext& context, ExportService& exports, Saves& saves);

    void stop() override { tasks_.clear(); }
    // On the server's thread.
    void perform(const ExportRequest& request, const Completion& completion);

 private:
    Task<> create(CreateExport request, Completion completion);
    Task<> remove(RemoveExport request, Completion completion);
    Task<> remove_template(config::ExportOptions removed, Completion completion);
    Task<> resize(ResizeExport request, Completion completion);
    Task<> flush(FlushExport request, Completion completion);
    Task<> evict(EvictExport request, Completion completion);
    // Calls `work` on a thread of its own, so that it waits neither for saves nor for other
    // origins.
    using Work = std::function<Outcome()>;
    Task<Outcome> on_thread(const Work& work);
    Task<> rename(RenameExport request, Completion completion);
    Task<> save(SaveExport request, Completion completion);
    Task<> restore(RestoreExport request, Completion completion);
    Task<> set_rates(SetRates request, Completion completion);
    Task<> set_read_only(SetReadOnly request, Completion completion);
    // Those of the configuration last until the file is read again.
    using Change = std::function<void(config::ExportOptions&)>;
    Task<Outcome> set_options(const std::string& name, const Change& change, std::string text);
    // Stores options so that the next server has them, or removes them.
    Expected<void> store(const config::ExportOptions& options) const;
    Expected<void> unstore(const config::ExportOptions& options) const;
    // The next server has the export with one of the two names, whenever this one is killed.
    Expected<void> store_renamed(const config::ExportOptions& from,
                                 const config::ExportOptions& to) const;
    // The contents of the export that the edit removes are not kept any longer: they are freed when
    // nothing uses them.
    void drop(const ExportEdit& edit, const std::string& name) const;

    ServerContext& context_;
    ExportService& exports_;
    Saves& saves_;
    const std::optional<StateFolder> state_;
    TaskGroup tasks_;
};

}  // namespace gpunbd::server
