// The server that this one replaces, while it still serves. It hands over its listeners, contents
// and connections, and then activates this server.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/handover/kept_contents.hpp"
#include "server/handover/kept_exports.hpp"
#include "server/handover/message.hpp"
#include "server/supervisor/passed_descriptors.hpp"

namespace gpunbd::server {

class Predecessor {
 public:
    // Uses and removes a variable of the environment. Null: there is no predecessor. This function
    // and the following throw std::runtime_error if the predecessor has ended or violates the
    // protocol.
    static std::unique_ptr<Predecessor> from_environment();

    // Available while the predecessor serves.
    PassedDescriptors take_listeners() { return std::move(listeners_); }
    std::map<std::string, std::string> take_calibrations() { return std::move(calibrations_); }
    // The options of exports that were created at run time.
    std::vector<KeptExports::Copy> take_run_time_exports() { return std::move(run_time_exports_); }
    const std::vector<std::string>& devices() const { return devices_; }  // their identities
    const std::vector<std::uint32_t>& ublk_devices() const { return ublk_devices_; }  // their ids
    // Kept contents at the time when the predecessor started this server. They change further.
    std::vector<KeptContents::Copy> take_contents_to_import() {
        return std::move(contents_to_import_);
    }

    // Call it after the slow preparations: the predecessor stops serving and hands over the rest.
    struct Contents {
        std::string name;
        OwnedFd descriptor;
    };
    struct Client {
        std::unique_ptr<ConnectionState> state;
        OwnedFd socket;
    };
    struct Rest {
        std::vector<Contents> contents;
        std::vector<Client> clients;
        std::map<std::string, OwnedFd> origin_locks;  // by Origin::name()
    };
    Rest take_rest();
    // Call it when ready to serve. Returns when the predecessor has stopped serving.
    void wait_until_active();

 private:
    explicit Predecessor(OwnedFd socket);
    void take(UpgradeMessage message);
    Client take_client(UpgradeMessage message);

    const MessageSocket socket_;
    PassedDescriptors listeners_;
    std::map<std::string, std::string> calibrations_;
    std::vector<KeptExports::Copy> run_time_exports_;
    std::vector<std::string> devices_;
    std::vector<std::uint32_t> ublk_devices_;
    std::vector<KeptContents::Copy> contents_to_import_;
};

}  // namespace gpunbd::server
