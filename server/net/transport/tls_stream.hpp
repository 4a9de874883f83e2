#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "server/base/peer.hpp"
#include "server/net/transport/pool.hpp"
#include "server/net/transport/receive_buffer.hpp"
#include "server/net/transport/tls_context.hpp"
#include "server/net/transport/transport.hpp"
#include "storage/assertions/assert.hpp"

struct bio_st;  // OpenSSL's BIO and SSL
struct ssl_st;

namespace gpunbd::server {

// Finds the bounds of TLS records in a byte stream by their headers.
class RecordBounds {
 public:
    static constexpr std::size_t header_size = 5;  // bytes: type, version, length

    // Bytes up to the end of the header or the record.
    std::size_t left() const {
        return header_filled_ < header_size ? header_size - header_filled_ : body_left_;
    }
    // true: these bytes complete a record.
    bool take(std::span<const char> bytes) {
        GPUNBD_ASSERT(bytes.size() <= left(), "bytes are taken up to the next bound");
        if (header_filled_ < header_size) {
            for (const char byte : bytes)
                header_[header_filled_++] = static_cast<unsigned char>(byte);
            if (header_filled_ < header_size) return false;
            length_ = body_left_ = std::size_t{header_[3]} << 8 | header_[4];
        } else {
            body_left_ -= bytes.size();
        }
        if (body_left_ != 0) return false;
        header_filled_ = 0;
        return true;
    }
    // Length of the last record with a complete header, without the header.
    std::size_t length() const { return length_; }

 private:
    std::array<unsigned char, header_size> header_{};
    std::size_t header_filled_ = 0;
    std::size_t body_left_ = 0;  // once the header is complete
    std::size_t length_ = 0;
};

// Limits the TLS records without payload that a peer may send: key updates, alerts, refused
// renegotiations, empty records. A key update costs the receiver as much as 16 KiB of payload and
// its sender next to nothing.
class ControlAllowance {
 public:
    using Clock = std::chrono::steady_clock;

    // In a row. Libraries update keys after 2^23 to 2^24 records, which carry at least 2^28 bytes
    // in NBD, or by a clock after minutes or hours.
    static constexpr std::uint64_t most = 32;
    static constexpr std::uint64_t payload = std::uint64_t{64}
                                             << 20;      // bytes that restore the full allowance
    static constexpr std::chrono::seconds interval{10};  // that restores one record

    explicit ControlAllowance(Clock::time_point now) : counted_until_(now) {}

    void received(std::uint64_t bytes) { payload_ += bytes; }
    // false: the peer has exceeded its allowance.
    bool take(Clock::time_point now) {
        constexpr std::uint64_t payload_for_one = payload / most;
        const auto intervals = (now - counted_until_) / interval;
        left_ = std::min(
            most, left_ + payload_ / payload_for_one + static_cast<std::uint64_t>(intervals));
        payload_ %= payload_for_one;
        counted_until_ += intervals * interval;
        if (left_ == 0) return false;
        --left_;
        return true;
    }

 private:
    std::uint64_t left_ = most;
    std::uint64_t payload_ = 0;  // bytes not yet converted into allowance
    Clock::time_point counted_until_;
};

// TLS over a connected socket, with the interface of Transport. With kernel TLS for sending, bytes
// go straight from the caller's memory to the socket; otherwise many records are sealed and sent by
// one call. Received records are always opened in the process, because the number of records that
// one system call opens cannot be bounded.
class TlsStream {
 public:
    // AES-GCM is safe for about 2^24.5 records per key (RFC 8446, 5.5).
    static constexpr std::uint64_t max_records_per_key = std::uint64_t{1} << 23;

    // `fd`: non-blocking, not owned. It and `buffers` must outlive the stream. Throws
    // std::bad_alloc.
    TlsStream(std::shared_ptr<const TlsContext> context, int fd, Pool<ReceiveBuffer>& buffers,
              std::uint64_t records_per_key = max_records_per_key);
    ~TlsStream();
    TlsStream(const TlsStream&) = delete;
    TlsStream& operator=(const TlsStream&) = delete;

    // Continues the server's side of the handshake. Call again, after the wait if there is one,
    // until it ends or is established(). A call reads only a few records, so that others get their
    // turns in between.
    Transport::Result shake_hands();
    bool established() const { return established_; }
    // The cause of the end, if there is more to say than errno; else empty.
    const std::string& failure() const { return failure_; }

    // After the handshake, as Transport's. Bytes that send() has sealed but not sent must be
    // offered first the next time. receive() does a bounded amount of work: with neither bytes,
    // wait nor end, call it again. It ends the connection of a peer that sends too many records
    // without payload.
    Transport::Result receive(std::span<iovec> into);
    // The peer is served now and gets receive buffers of full size.
    void begin_serving() { serving_ = true; }
    Transport::Result send(std::span<iovec> from);

    void release_memory() noexcept;
    std::size_t memory() const;
    // Sends close_notify as far as the socket takes it.
    void say_goodbye() noexcept;

    // The identity that the client has proved.
    TlsIdentity identity() const;
    // "TLS 1.3, TLS_AES_128_GCM_SHA256, kernel sending", or "in the process"
    std::string text() const;

    // For callbacks of OpenSSL.
    static TlsStream& of(ssl_st& ssl);
    unsigned int find_key(const char* user, std::span<unsigned char> room) noexcept;
    bool may_read_handshake() noexcept;
    void has_read_handshake() noexcept;
    int take_record(std::span<char> into, bio_st& bio) noexcept;  // received; one per call
    int put_records(std::span<const char> from) noexcept;         // to send
    bool ended() const { return peer_has_ended_; }

 private:
    void leave_to_kernel();
    Transport::Result outcome(int returned);
    std::size_t cost_of_record(std::size_t got, std::size_t room) const;
    void end_receiving(bool ended);
    bool seal(std::span<const std::byte> plain);
    bool seal_some(std::span<const iovec> from);
    Transport::Result flush() noexcept;
    bool uses_psk() const;
    bool room_for_record() const;
    ReceiveBuffer& take_buffer();
    void give_back(ReceiveBuffer*& buffer) noexcept;

    struct Free {
        void operator()(ssl_st* ssl) const noexcept;
    };
    const std::shared_ptr<const TlsContext> context_;
    const int fd_;
    Pool<ReceiveBuffer>& buffers_;
    std::unique_ptr<ssl_st, Free> ssl_;
    std::uint32_t handshake_reads_ = 0;       // so far
    std::uint32_t handshake_reads_left_ = 0;  // in this call
    ReceiveBuffer* in_ = nullptr;             // received records; null: none
    bool serving_ = false;
    RecordBounds bounds_;
    bool record_over_ = false;  // this call has taken its one record
    ControlAllowance control_{ControlAllowance::Clock::now()};
    ReceiveBuffer* out_ = nullptr;  // records to send; null: none
    std::size_t sealed_ = 0;        // bytes of the caller that are in out_
    const std::uint64_t records_per_key_;
    std::uint64_t records_ = 0;  // sealed with this key
    bool established_ = false;
    bool kernel_sends_ = false;
    bool peer_has_ended_ = false;
    bool unknown_user_ = false;
    std::string psk_user_;  // as the client sent it
    std::string failure_;
};

}  // namespace gpunbd::server
