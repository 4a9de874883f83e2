// TLS over a connected socket, behind the calls of Transport. Where the kernel has taken over a
// direction (kernel TLS), bytes go straight between the socket and the caller's memory; else
// records are opened into that memory, and many are sealed and sent by one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "server/connection/peer.hpp"
#include "server/connection/pool.hpp"
#include "server/connection/receive_buffer.hpp"
#include "server/connection/transport.hpp"
#include "server/tls/tls_context.hpp"

struct bio_st;  // OpenSSL's BIO and SSL
struct ssl_st;

namespace gpunbd::server {

class TlsStream {
 public:
    // AES-GCM is safe for some 2^24.5 records with one key (RFC 8446, 5.5).
    static constexpr std::uint64_t max_records_per_key = std::uint64_t{1} << 23;

    // `fd`: its owner's, non-blocking. It and `buffers` outlive this. Throws std::bad_alloc.
    TlsStream(std::shared_ptr<const TlsContext> context, int fd, Pool<ReceiveBuffer>& buffers,
              std::uint64_t records_per_key = max_records_per_key);
    ~TlsStream();
    TlsStream(const TlsStream&) = delete;
    TlsStream& operator=(const TlsStream&) = delete;

    // The server's part of the handshake, as far as it goes now; again after the wait. With neither
    // wait nor end it is complete. Ended: failure() says why.
    Transport::Result shake_hands();
    const std::string& failure() const { return failure_; }

    // After it, as Transport's. What send() says has gone has left for the socket; what it has
    // sealed but not sent it remembers: the same bytes are to be offered first the next time.
    Transport::Result receive(std::span<iovec> into);
    Transport::Result send(std::span<iovec> from);
    bool pending() const { return more_; }

    void rest() noexcept;
    std::size_t memory() const;
    // close_notify, as far as the socket takes it.
    void say_goodbye() noexcept;

    // Whom the client has proved to be.
    TlsIdentity identity() const;
    // "TLS 1.3, TLS_AES_128_GCM_SHA256, kernel sending"
    std::string words() const;

    // For the callbacks of OpenSSL.
    static TlsStream& of(ssl_st& ssl);
    unsigned int find_key(const char* user, std::span<unsigned char> room) noexcept;
    int take_records(std::span<char> into, bio_st& bio) noexcept;  // received
    int put_records(std::span<const char> from) noexcept;          // to be sent
    bool ended() const { return peer_has_ended_; }

 private:
    void leave_to_kernel();
    Transport::Result outcome(int returned);
    bool seal(std::span<const std::byte> plain);
    bool seal_some(std::span<const iovec> from);
    Transport::Result flush() noexcept;
    bool uses_psk() const;
    bool room_for_record() const;

    struct Free {
        void operator()(ssl_st* ssl) const noexcept;
    };
    const std::shared_ptr<const TlsContext> context_;
    const int fd_;
    Pool<ReceiveBuffer>& buffers_;
    std::unique_ptr<ssl_st, Free> ssl_;
    ReceiveBuffer* in_ = nullptr;   // records received; null: none
    ReceiveBuffer* out_ = nullptr;  // records to be sent; null: none
    std::size_t sealed_ = 0;        // bytes of the caller's that are in out_
    const std::uint64_t records_per_key_;
    std::uint64_t records_ = 0;  // sealed with this key
    bool established_ = false;
    bool kernel_sends_ = false;
    bool kernel_receives_ = false;
    bool more_ = false;
    bool peer_has_ended_ = false;
    bool unknown_user_ = false;
    std::string psk_user_;  // as the client gave it
    std::string failure_;
};

}  // namespace gpunbd::server
