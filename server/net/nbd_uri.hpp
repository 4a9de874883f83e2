// NBD URIs of exports.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

// `tls`: the scheme is nbds or nbds+unix.
std::string unix_uri(const std::string& socket_path, const std::string& export_name,
                     bool tls = false);
// The URI of the socket `fd` as a client on this machine reaches it: a wildcard address becomes
// loopback, a vsock address the machine's own context id, which its guests or its host can use.
// None: NBD URIs cannot express the address.
std::optional<std::string> listener_uri(int fd, const std::string& export_name, bool tls = false);
// Escapes text for a URI, except slashes.
std::string percent_encoded(const std::string& text);
// Quotes a word for a shell if it needs that.
std::string shell_word(const std::string& text);

}  // namespace gpunbd::server
