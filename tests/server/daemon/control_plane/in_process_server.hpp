// The control plane of a server: its services without listeners, sockets and signals. The test runs
// their event loop, step by step.
#pragma once

#include "config/yaml_file.hpp"
#include "server/daemon/client_clones.hpp"
#include "server/daemon/contents_service.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/reclaim_service.hpp"
#include "server/daemon/run_time_exports.hpp"
#include "server/daemon/saves.hpp"
#include "server/daemon/worker_pool.hpp"
#include "tests/server/daemon/control_plane/disk.hpp"
#include "tests/server/daemon/control_plane/in_process_supervisor.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {

// An event that takes longer never happens.
constexpr auto patience = std::chrono::seconds(60);

class InProcessServer {
 public:
    // `predecessor`: this server is its upgrade.
    InProcessServer(InProcessSupervisor& supervisor, const std::string& config_file,
                    InProcessServer* predecessor = nullptr)
        : context(command_of(config_file), config::load_file(config_file).options,
                  passed_by(supervisor)) {
        workers = &services_.add<WorkerPool>(context);
        saves = &services_.add<Saves>(context);
        exports = &services_.add<ExportService>(
            context, *workers, *saves,
            [this](const auto& next, auto& problems) { return services_.reload(next, problems); });
        services_.add<ContentsService>(context, *exports);
        queries = &services_.add<KeptQueries>(context, *exports);
        run_time_exports = &services_.add<RunTimeExports>(context, *exports, *saves);
        services_.add<ClientClones>(context, *exports);
        reclaim = &services_.add<ReclaimService>(context);
        KeptContents& contents = *context.kept.contents;
        if (predecessor != nullptr) contents.quiesce();
        services_.open();
        exports->make_first([this, &contents, predecessor] {
            if (predecessor != nullptr) {
                if (!exports->refused().empty()) {
                    throw std::runtime_error(exports->refused().front().why);
                }
                contents.resume();
            }
            services_.start();
            context.lifecycle.enter(Phase::serving);
        });
        run_until([this] {
            return context.lifecycle.phase() == Phase::serving || context.lifecycle.failure;
        });
        if (context.lifecycle.failure) std::rethrow_exception(context.lifecycle.failure);
        settle();
    }
    ~InProcessServer() {
        if (!context.lifecycle.draining()) context.lifecycle.enter(Phase::draining);
        services_.stop();
    }
    InProcessServer(const InProcessServer&) = delete;
    InProcessServer& operator=(const InProcessServer&) = delete;

    // As SIGTERM does. A call that the disk holds ends meanwhile.
    void terminate() {
        context.lifecycle.enter(Phase::draining);
        services_.drain();
        const std::jthread disk([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(disk::is_holding() ? 2 : 0));
            disk::release();
        });
        services_.stop();
    }
    // Returns the problem of the successor; empty: it serves, and is in `successor`.
    std::string upgrade(InProcessSupervisor& supervisor, const std::string& config_file,
                        std::unique_ptr<InProcessServer>& successor) {
        context.lifecycle.enter(Phase::handing_over);
        reclaim->pause();
        context.kept.contents->quiesce();
        try {
            successor = std::make_unique<InProcessServer>(supervisor, config_file, this);
        } catch (const std::exception& error) {
            return error.what();
        }
        context.lifecycle.enter(Phase::draining);
        context.lifecycle.handed_over = true;
        services_.hand_over();
        return {};
    }

    void run_until(const std::function<bool()>& condition) {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (!condition()) {
            if (context.io.stopped()) context.io.restart();
            if (context.io.poll_one() != 0) continue;
            if (std::chrono::steady_clock::now() > end)
                throw std::runtime_error("the server does not continue");
            std::this_thread::sleep_for(std::chrono::microseconds(20));  // the loop waits for 1 ms
        }
    }
    // Until all changes are made, or wait for the disk.
    void settle() {
        bool waits = false;
        for (int quiet = 0; quiet != 2;) {
            run_until([&] {
                waits = disk::is_holding();
                return !exports->busy() && (waits || (!saves->busy() && !exports->restoring()));
            });
            std::atomic<bool> passed{false};
            workers->workers().front()->post([&](WorkerContext&) { passed = true; });
            run_until([&] { return passed.load(); });
            quiet = context.io.poll() == 0 && !exports->busy() ? quiet + 1 : 0;
        }
    }

    ServerContext context;
    WorkerPool* workers = nullptr;
    ExportService* exports = nullptr;
    KeptQueries* queries = nullptr;
    Saves* saves = nullptr;
    RunTimeExports* run_time_exports = nullptr;
    ReclaimService* reclaim = nullptr;

 private:
    static config::ServeCommand command_of(const std::string& config_file) {
        config::ServeCommand command;
        command.config_file = config_file;
        return command;
    }
    static Supervision::Passed passed_by(InProcessSupervisor& supervisor) {
        ::setenv("FDSTORE", "100000", 1);
        Supervision::Passed passed;
        passed.descriptors = supervisor.hand_over();
        passed.socket = supervisor.next_socket();
        return passed;
    }

    ServiceList services_;
};

}  // namespace gpunbd::server::test
