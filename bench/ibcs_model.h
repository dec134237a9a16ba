// The cluster of `forebay bench ibcs`: that of paper 3, section IV.A, as far as it is told there,
// and otherwise what such machines of 2012 were like. The figures were fixed before anything was
// computed with them, and are not tuned to the result: how much the result depends on each is part
// of the benchmark (from a quarter to four times).
//
// What is simulated, in virtual time:
// - Nodes and servers on one switch that is never the limit, with full duplex links. What leaves a
//   place for different others shares its link packet by packet, what goes to the same one follows
//   in order, as on one TCP connection.
// - A server has one target, a disk; its requests wait in one queue, which is served like an
//   elevator (rising offset, then again from the lowest), as Linux does. Requests that follow each
//   other in the target's object cost no seek. A write is answered when it is on the disk.
// - Extent locks for writers as in Lustre, in whole stripes: a granted lock grows as far as no
//   other lock and no waiting request is in its way; a request under somebody else's lock has it
//   revoked first, and the target waits meanwhile. Readers do not conflict.
// - A process handles one message at a time. What stays on a node is copied; a process's data in
//   its own aggregator costs a copy and no message.
// - A collective call runs in iterations: exchange, then I/O (a read: I/O, then exchange), then all
//   wait for each other, as in ROMIO (paper 3, section II.A). Clients cache nothing.
#pragma once

namespace forebay::bench {

struct IbcsModel {
  // Gigabit Ethernet (section IV.A): 941 Mbit/s of payload by TCP with frames of 1500 bytes. B/s.
  double link = 117.6e6;
  // One way, through both kernels' TCP: half of the usual 0.1 ms round trip of Gigabit Ethernet. s.
  double latency = 50e-6;
  // Processor time to send or to take one MPI message over TCP, beside its bytes: two system calls
  // and a wake-up. s.
  double message = 20e-6;
  // Packing and unpacking by a core of an E5-2670 (section IV.A): some 5 GB/s of plain copies, half
  // of it with gathered pieces. B/s.
  double copy = 2.5e9;
  // What a link gives one sender before the next: a full TCP window without further options. B.
  double packet = 64 << 10;
  // The paper does not tell the disks. A 7200 rpm disk of 1 to 2 TB: 140 MB/s outside, 70 inside;
  // a file system that is not full lies outside. B/s.
  double disk = 120e6;
  // The same disk: half a revolution (4.2 ms) and a short seek, within one file's objects (2 ms;
  // over the whole disk it would be 8.5). s.
  double seek = 6.2e-3;
  // Of a lock: callback to its holder and cancellation, two round trips between busy kernels (0.2
  // ms each) and the holder's walk over the pages of a stripe. s.
  double revoke = 1e-3;
  // Of a server for each request: unpacking, block mapping, submission. s.
  double request = 0.2e-3;
  // Lustre 2.1's largest bulk transfer. B.
  double rpc = 1 << 20;
  // Section IV.A. B.
  double stripe = 1 << 20;
  // Section IV.B. B.
  double buffer = 4 << 20;
  // Do reads come from the servers' memory? Lustre's servers keep what was written, as long as they
  // have room, and the paper does not say that its IOR read anything else than what it had just
  // written.
  bool warm = false;
};

// Of IBCS itself; the paper does not tell its own (section III.B).
constexpr double kIbcsThreshold = 0.25;

}  // namespace forebay::bench
