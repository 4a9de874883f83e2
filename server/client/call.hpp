// A server that is called: found once, and then called as often as its connections die.
#pragma once

#include <memory>
#include <string>

#include "server/client/address.hpp"
#include "server/client/failure.hpp"
#include "server/client/nbd_target.hpp"
#include "server/client/stream.hpp"
#include "server/client/tls.hpp"

namespace gpunbd::client {

struct Callee {
    Address address;
    std::shared_ptr<const Tls> tls;  // null: in the clear
    std::string name;                // of the export
};

// Looks the host up, and reads the files of TLS.
Or<Callee> find_callee(const NbdTarget& target, TlsBy by);

// It has greeted, TLS has begun where it is wanted, and it waits for options.
Or<Stream> call(const Callee& callee, Deadline until);

}  // namespace gpunbd::client
