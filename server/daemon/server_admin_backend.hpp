// The status and the changes of this server for the admin endpoint. The endpoint's thread calls it
// and reads the workers' counters. Changes are made and completed on the server's thread or a
// worker's; the endpoint's thread does not wait for them.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "server/admin/model/admin_backend.hpp"
#include "server/base/task_group.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/exports/export_registry.hpp"
#include "server/handover/kept_contents.hpp"
#include "server/nbd/worker.hpp"
#include "server/net/connection_slots.hpp"
#include "server/net/credentials/certificate_folder.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

class ServerAdminBackend final : public AdminBackend {
 public:
    using Workers = std::vector<Worker*>;
    using Volumes = std::vector<std::shared_ptr<storage::Volume>>;
    enum class State : std::uint8_t { starting, serving, draining };

    // Lists kept contents, or frees those of a name; on the server's thread.
    struct KeptQuery {
        std::optional<std::string> drop;
        Completion completion;
    };

    // What other parts of the server do.
    class Actions {
     public:
        // On the server's thread.
        virtual void perform(const ExportRequest& request, const Completion& completion) = 0;
        virtual void answer_about_kept(const KeptQuery& query) = 0;
        virtual void reclaim(const ReclaimRequest& request, const Completion& completion) = 0;
        virtual void end_reclaim(const EndOfReclaim& request, const Completion& completion) = 0;
        // On the endpoint's thread. Adds the counters of reclaiming to those of a device.
        virtual void add_reclaim(DeviceStatus& status) const = 0;
        virtual std::vector<Validity> validities() const = 0;  // of TLS
        // All volumes that exist, and the contents without an export.
        virtual Volumes volumes() const = 0;
        virtual std::vector<KeptContents::Unused> unused_contents() const = 0;

     protected:
        ~Actions() = default;
    };

    // The references must outlive this object. One thread at a time may call it.
    ServerAdminBackend(boost::asio::io_context& io, const ExportRegistry& exports,
                       const AcceptCounters& counters, Actions& actions);

    // Call it on the server's thread. The workers outlive the endpoint.
    void serves(Workers workers);
    void drains() { state_ = State::draining; }

    Status status() override;
    std::optional<ExportMap> map(std::string_view name, std::uint64_t offset, std::uint64_t length,
                                 std::uint32_t max_cells) override;
    std::optional<PageRuns> pages(std::string_view name, std::uint64_t offset, std::uint64_t length,
                                  std::size_t max_runs) override;
    Outcome set_log_level(std::string_view level) override;
    void end_connection(std::uint64_t id, Completion completion) override;
    void perform(const ExportRequest& request, Completion completion) override;
    void list_kept(Completion completion) override;
    void drop_kept(std::string_view name, Completion completion) override;
    void reclaim(const ReclaimRequest& request, Completion completion) override;
    void end_reclaim(const EndOfReclaim& request, Completion completion) override;

 private:
    Workers workers() const;
    std::shared_ptr<const Export> find(std::string_view name) const;
    // Also adds the devices of the exports.
    void add_exports(Status& status, const Workers& workers) const;
    // Contents that are not among `volumes`, to which it adds their volumes.
    void add_contents(Status& status, Volumes& volumes) const;
    void add_connections(Status& status, const Workers& workers) const;
    void ask_about_kept(KeptQuery query);

    const ExportRegistry& exports_;
    const AcceptCounters& counters_;
    Actions& actions_;
    const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
    const std::chrono::steady_clock::time_point up_since_ = std::chrono::steady_clock::now();
    std::atomic<State> state_{State::starting};
    mutable Mutex mutex_;
    Workers workers_ GUARDED_BY(mutex_);
    LoopCalls calls_;
};

}  // namespace gpunbd::server
