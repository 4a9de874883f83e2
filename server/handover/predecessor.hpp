// The server in whose place this one is started, as long as that still serves: what it hands over,
// and when this one's turn has come.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/handover/message_socket.hpp"
#include "server/handover/retained_contents.hpp"
#include "server/supervisor/inherited_descriptors.hpp"

namespace gpunbd::server {

class Predecessor {
 public:
    // From the environment, out of which it is taken. Null: there is none. This and all that
    // follows throws std::runtime_error where the other one has gone, or says what it should not.
    static std::unique_ptr<Predecessor> from_environment();

    // What it gives while it serves.
    InheritedDescriptors take_listeners() { return std::move(listeners_); }
    std::map<std::string, std::string> take_calibrations() { return std::move(calibrations_); }
    const std::vector<std::string>& devices() const { return devices_; }  // identities
    // Kept contents as they were when the predecessor started this server. They go on changing.
    std::vector<RetainedContents::Copy> take_contents_to_import() {
        return std::move(contents_to_import_);
    }

    // What takes long is done: it stops serving, and gives the rest.
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
    };
    Rest take_rest();
    // Nothing is to be done but to serve. Returns when nobody else does any more.
    void wait_for_turn();

 private:
    explicit Predecessor(OwnedFd socket);
    void take(UpgradeMessage message);
    Client take_client(UpgradeMessage message);

    const MessageSocket socket_;
    InheritedDescriptors listeners_;
    std::map<std::string, std::string> calibrations_;
    std::vector<std::string> devices_;
    std::vector<RetainedContents::Copy> contents_to_import_;
};

}  // namespace gpunbd::server
