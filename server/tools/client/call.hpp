// A server that is called: found once, and then called as often as its connections die.
#pragma once

#include <memory>
#include <string>

#include "server/tools/client/address.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/nbd_target.hpp"
#include "server/tools/client/stream.hpp"
#include "server/tools/client/tls.hpp"

namespace gpunbd::client {

struct Endpoint {
    Address address;
    std::shared_ptr<const Tls> tls;  // null: in the clear
    std::string name;                // of the export
};

// Looks the host up, and reads the files of TLS.
Or<Endpoint> find_endpoint(const NbdTarget& target, TlsBy by);

// It has greeted, TLS has begun where it is wanted, and it waits for options.
Or<Stream> call(const Endpoint& endpoint, Deadline until);

}  // namespace gpunbd::client
