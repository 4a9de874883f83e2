#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/daemon/run_command.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/net/listener.hpp"
#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/passed_descriptors.hpp"

namespace gpunbd::server {

// Listening sockets that outlive the server: clients that connect during a restart wait in the
// backlog. The supervisor stores the sockets under names derived from their addresses.
class KeptSockets {
 public:
    // `store` and `handed_over` outlive this object. `outlive`: the sockets are stored for the
    // next server; otherwise those of an earlier server are taken over, but not stored again.
    KeptSockets(DescriptorStore& store, PassedDescriptors& handed_over, bool outlive)
        : store_(store), handed_over_(handed_over), outlive_(outlive) {}
    bool outlive() const { return outlive_; }

    // The name of the stored socket of that address.
    static std::string name(const std::string& address);
    // Returns the stored socket of an earlier server for that address.
    std::optional<OwnedFd> take(const std::string& address);
    void keep(const std::string& address, int fd);
    // Removes the sockets that were not taken, because the configuration does not contain them any
    // more.
    void forget_the_rest();

 private:
    void forget(const std::string& its_name);

    DescriptorStore& store_;
    PassedDescriptors& handed_over_;
    bool outlive_;
};

// The listening sockets: inherited, stored by an earlier server, or newly opened.
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
    void open_kept(const std::string& address, Open open);
    void open_tcp(const config::TcpListener& options);
    void open_unix(const config::UnixListener& options);
    // Returns one text if an origin is on this server, and one per listener that gives
    // unauthenticated clients access to an export. If the options allow that access, logs a warning
    // instead.
    std::vector<std::string> problems_of(const config::Options& options) const;

    ServerContext& context_;
    ConnectionDispatcher& dispatcher_;
    const RunCommand* const command_;
    std::optional<KeptSockets> kept_;  // unset: no descriptor store
    std::vector<std::unique_ptr<Listener>> listeners_;
    bool inherited_ = false;
};

}  // namespace gpunbd::server
