// Where clients find an export, as an NBD URI that they take as it is.
#pragma once

#include <optional>
#include <string>

namespace gpunbd::server {

// `tls`: the export is to be had in TLS only, so that the scheme is nbds or nbds+unix.
std::string unix_uri(const std::string& socket_path, const std::string& export_name,
                     bool tls = false);
// Of what listens on `fd`, as a client on this machine reaches it: a wildcard address is shown as
// loopback, that of a vsock as the machine's own, which its guests or its host can use, too. None:
// an address that NBD URIs do not know.
std::optional<std::string> listener_uri(int fd, const std::string& export_name, bool tls = false);
// As a part of a URI; a slash stays what it is.
std::string percent_encoded(const std::string& text);
// As a word for a shell: in quotes where it needs them.
std::string shell_word(const std::string& text);

}  // namespace gpunbd::server
