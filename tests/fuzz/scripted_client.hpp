// A client that checks each reply, by the gate's validation of the request and a shadow of the
// volume. Requests are queued until the script sends a number of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "protocol/gate.hpp"
#include "tests/fuzz/shadow.hpp"
#include "tests/server/client.hpp"

namespace gpunbd::fuzz {

class ScriptedClient {
 public:
    // `client` has completed the handshake.
    ScriptedClient(server::test::Client client, protocol::NegotiatedOptions negotiated,
                   Shadow& shadow);

    void ask(const server::test::Ask& ask);
    // Sends bytes that are not a request. Afterwards the effect on the volume is unknown, and the
    // server may disconnect.
    void send_junk(std::span<const std::byte> bytes);
    // Sends up to `maximum` bytes of the queue.
    void send(std::size_t maximum);
    void receive(std::size_t maximum);
    void stop_sending();
    void cut();

    // The script did something to the server that permits failures, or disconnects.
    static void excuse_failures() { failures_excused = true; }
    static void excuse_ends() { ends_excused = true; }
    static void excuse_nothing() { failures_excused = ends_excused = false; }

    bool extended() const { return negotiated_.headers == protocol::Headers::extended; }
    // It complies with the protocol, so the server must answer it.
    bool compliant() const { return !sent_junk_ && !stopped_ && !cut_; }
    bool satisfied() const { return client_.ended() || (to_send_.empty() && pending_.empty()); }

 private:
    struct Pending {
        server::test::Ask ask;
        protocol::Validated expected;
        Shadow::Time at;
    };
    static inline bool failures_excused = false;
    static inline bool ends_excused = false;

    void check(const server::test::Answer& answer);
    void check_error(const Pending& request, protocol::Error error) const;
    void check_data(const Pending& request, const server::test::Bytes& data) const;
    void check_extents(const Pending& request, const std::vector<protocol::Extent>& extents) const;
    void check_end() const;

    server::test::Client client_;
    const protocol::NegotiatedOptions negotiated_;
    Shadow& shadow_;
    server::test::Bytes to_send_;
    std::map<std::uint64_t, Pending> pending_;
    bool leaves_ = false;  // it has sent DISC, or a request at which the server disconnects
    bool server_disconnects_ = false;
    bool sent_junk_ = false;
    bool stopped_ = false;  // it sends nothing more
    bool cut_ = false;
};

}  // namespace gpunbd::fuzz
