// The server: a list of services, and the reactions to termination and hand-over requests.
#pragma once

#include <functional>
#include <memory>

#include "server/admin/model/event_log.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class AdminService;
class ContentsService;
class Drain;
class ExportService;
class HandOver;
class ReclaimService;
class RunCommand;
class SwapProtection;
class Takeover;
class UblkService;
class WorkerPool;

class Server final : private ServerControl {
 public:
    // `options` combine `command` and its configuration file. `events` are those of the log.
    Server(const config::ServeCommand& command, config::Options options,
           std::shared_ptr<const admin::EventLog> events);
    ~Server();

    // Serves until termination is requested. Returns the exit code of the process. Calls
    // `on_ready`, which may be empty, once clients can connect. Throws std::runtime_error with a
    // one-line message if it cannot start.
    int run(const std::function<void()>& on_ready);

 private:
    void add_services(std::shared_ptr<const admin::EventLog> events);
    void run_events();
    void end() override;
    void end_now() override;
    void end_after_swapoff() override;
    void drain() override;
    bool end_is_held() const override;
    void reload() override;
    void log_trace() override;
    void child_exited() override;
    void hand_over() override;
    void yield() override;
    void handed_over() override;
    void resume() override;
    void taken_over() override;

    ServerContext context_;
    ServiceList services_;
    // Owned by services_.
    WorkerPool* workers_ = nullptr;
    ExportService* exports_ = nullptr;
    ContentsService* contents_ = nullptr;
    ReclaimService* reclaim_ = nullptr;
    AdminService* admin_ = nullptr;
    SwapProtection* swap_ = nullptr;
    UblkService* ublk_ = nullptr;
    Takeover* takeover_ = nullptr;   // null: there is no predecessor
    RunCommand* command_ = nullptr;  // null: without --run
    Drain* drain_ = nullptr;
    HandOver* hand_over_ = nullptr;
};

}  // namespace gpunbd::server
