// The listening sockets: inherited, stored by an earlier server, or newly opened.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/daemon/connection_dispatcher.hpp"
#include "server/daemon/retained_sockets.hpp"
#include "server/daemon/run_command.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/net/listener.hpp"

namespace gpunbd::server {

class Listeners final : public Service {
 public:
    // `command`: null, or the only client of the server.
    Listeners(ServerContext& context, ConnectionDispatcher& dispatcher, const RunCommand* command);

    // Clients that connect before start() wait in the backlogs.
    void open() override;
    void start() override;
    Commit reload(const config::Options& next, Problems& problems) override;
    void drain() override;
    void hand_over() override { drain(); }

    const std::vector<std::unique_ptr<Listener>>& all() const { return listeners_; }
    // Copies for a successor, with their names.
    struct Copy {
        std::string name;
        OwnedFd descriptor;
    };
    std::vector<Copy> copies() const;

 private:
    template <typename Open>
    void open_retained(const std::string& address, Open open);
    void open_tcp(const config::TcpListener& options);
    void open_unix(const config::UnixListener& options);
    // Returns one text per listener that gives unauthenticated clients access to an export. If the
    // options allow that access, logs a warning instead.
    std::vector<std::string> exposures(const config::Options& options) const;

    ServerContext& context_;
    ConnectionDispatcher& dispatcher_;
    const RunCommand* const command_;
    std::optional<RetainedSockets> retained_;  // unset: no descriptor store
    std::vector<std::unique_ptr<Listener>> listeners_;
    bool inherited_ = false;
};

}  // namespace gpunbd::server
