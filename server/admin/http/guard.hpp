// Who may ask: not the page of another site in a browser that reaches this one, whether by its
// address or by a name that has come to mean it (DNS rebinding), and nobody without the token.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/admin/http/message.hpp"
#include "server/admin/http/token.hpp"

namespace gpunbd::server::admin {

// By which way requests come, and what is asked of them there.
struct Door {
    bool tcp = false;
    bool tls = false;                     // with certificates of clients
    std::string authority = {};           // of TCP: the address as a URL has it, with the port
    std::vector<std::string> names = {};  // what else it is called, without the port
    std::optional<Token> token = {};

    // Is there anything that keeps strangers of this machine out?
    bool guarded() const { return !tcp || tls || token; }
};

// Nothing: it may be answered. `reached`: the address and port that the client has connected to.
std::optional<Answer> refuse_site(const Request& request, const Door& door,
                                  const std::string& reached);
// Of what a page may ask once the site is right: without a token there is none of it.
std::optional<Answer> refuse_stranger(const Request& request, const Door& door);

}  // namespace gpunbd::server::admin
