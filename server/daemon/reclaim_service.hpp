// Gives memory of devices back to other programs, for the admin endpoint and the configuration.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "server/admin/model/admin_backend.hpp"
#include "server/base/task.hpp"
#include "server/base/task_group.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/reclaim/reclaimer.hpp"

namespace gpunbd::server {

class ReclaimService final : public Service {
 public:
    explicit ReclaimService(ServerContext& context);

    void start() override;
    // Refuses to remove spill memory that holds pages.
    Commit reload(const config::Options& next, Problems& problems) override;
    void resume() override;
    void stop() override;
    // Until resume(), no page moves, so that another process can take the contents over. Pages on
    // their way arrive before.
    void pause() { reclaimer_.stop(); }

    // On the server's thread.
    void reclaim(const ReclaimRequest& request, const Completion& completion);
    void end(const EndOfReclaim& request, const Completion& completion);
    // May be called on any thread.
    void add_to(DeviceStatus& status) const { reclaimer_.add_to(status); }

 private:
    // Empty: the completion has the reason.
    std::vector<std::string> devices_for(const std::string& device, const Completion& completion);
    Reclaimer::Done forget_later(const Reclaimer::Ids& ended);
    Task<> end_later(std::uint64_t claim, std::chrono::seconds duration);

    ServerContext& context_;
    LoopCalls calls_;
    Reclaimer reclaimer_;
    std::uint64_t last_claim_ = 0;  // its id
    TaskGroup tasks_;
};

}  // namespace gpunbd::server
