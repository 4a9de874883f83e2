// Creates, removes and changes exports at the request of an administrator.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/admin/model/admin_backend.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/saves.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/state_folder.hpp"

namespace gpunbd::server {

class RunTimeExports final : public Service {
 public:
    RunTimeExports(ServerContext& context, ExportService& exports, Saves& saves);

    // On the server's thread.
    void change(const ExportChange& change, const Completion& completion);

 private:
    void apply(const CreateExport& create, const Completion& completion);
    void apply(const RemoveExport& remove, const Completion& completion);
    void remove_template(const config::ExportOptions& removed, const Completion& completion);
    void apply(const ResizeExport& resize, const Completion& completion);
    void apply(const RenameExport& rename, const Completion& completion);
    void apply(const SaveExport& save, const Completion& completion);
    void apply(const RestoreExport& restore, const Completion& completion);
    // Stores options so that the next server has them, or removes them. Returns the problem.
    std::string store(const config::ExportOptions& options) const;
    std::string unstore(const config::ExportOptions& options) const;
    // The next server has the export with one of the two names, whenever this one is killed.
    std::string store_renamed(const config::ExportOptions& from,
                              const config::ExportOptions& to) const;
    // The contents are not kept any longer: they are freed when nothing uses them.
    void forget(const std::weak_ptr<storage::Volume>& removed) const;

    ServerContext& context_;
    ExportService& exports_;
    Saves& saves_;
    const std::optional<StateFolder> state_;
};

}  // namespace gpunbd::server
