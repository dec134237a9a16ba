! A program with mpi_f08 like any other: views, collective, non-blocking and split calls, an error
! handler of its own, sizes. The argument is the file; number i of the file is i.
module handler
  use mpi_f08
  implicit none
  integer :: calls = 0, last = MPI_SUCCESS
contains
  subroutine count_errors(file, code)
    type(MPI_File) :: file
    integer :: code
    calls = calls + 1
    call MPI_Error_class(code, last)
  end subroutine
end module

program fortran_file
  use mpi_f08
  use handler
  implicit none
  integer, parameter :: rounds = 50, each = 7
  integer :: rank, ranks, i, j, n, at, code
  type(MPI_File) :: file
  character(len=1024) :: path

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call get_command_argument(1, path)
  call MPI_File_open(MPI_COMM_WORLD, trim(path), MPI_MODE_CREATE + MPI_MODE_RDWR, &
                     MPI_INFO_NULL, file, code)
  call check(code == MPI_SUCCESS, 'open')
  call through_a_view()
  call nonblocking()
  call sizes()
  call errors()
  call MPI_File_close(file, code)
  call check(code == MPI_SUCCESS, 'close')
  call MPI_Finalize()

contains

  subroutine check(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (good) return
    write (0, *) 'rank', rank, 'not so: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine

  ! Groups of `each` numbers of all ranks in turn.
  subroutine through_a_view()
    type(MPI_Datatype) :: type
    type(MPI_Status) :: status
    integer :: values(rounds * each), back(rounds * each)
    integer(MPI_OFFSET_KIND) :: displacement, position
    n = 0
    do i = 0, rounds - 1
      do j = 0, each - 1
        n = n + 1
        values(n) = (i * ranks + rank) * each + j
      end do
    end do
    call MPI_Type_vector(rounds, each, each * ranks, MPI_INTEGER, type)
    call MPI_Type_commit(type)
    displacement = int(rank, MPI_OFFSET_KIND) * each * 4
    call MPI_File_set_view(file, displacement, MPI_INTEGER, type, 'native', MPI_INFO_NULL, code)
    call check(code == MPI_SUCCESS, 'set_view')
    call MPI_File_write_all(file, values, size(values), MPI_INTEGER, status, code)
    call check(code == MPI_SUCCESS, 'write_all')
    call MPI_Get_count(status, MPI_INTEGER, n)
    call check(n == size(values), 'the count of write_all')
    call MPI_File_get_position(file, position)
    call check(position == size(values), 'position')
    call MPI_File_seek(file, 0_MPI_OFFSET_KIND, MPI_SEEK_SET)
    call MPI_File_read_all_begin(file, back, size(back), MPI_INTEGER)
    call MPI_File_read_all_end(file, back, status, code)
    call check(code == MPI_SUCCESS .and. all(back == values), 'what was read')
    call MPI_Type_free(type)
  end subroutine

  ! Behind them: `each` numbers of every rank.
  subroutine nonblocking()
    type(MPI_Request) :: requests(each)
    type(MPI_Status) :: status
    integer, asynchronous :: values(each), back(each)
    integer(MPI_OFFSET_KIND) :: offset
    call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL)
    at = rounds * each * ranks + rank * each
    do i = 1, each
      values(i) = at + i - 1
      offset = at + i - 1
      call MPI_File_iwrite_at(file, offset, values(i), 1, MPI_INTEGER, requests(i), code)
      call check(code == MPI_SUCCESS, 'iwrite_at')
    end do
    call MPI_Waitall(each, requests, MPI_STATUSES_IGNORE)
    offset = at
    call MPI_File_iread_at(file, offset, back, each, MPI_INTEGER, requests(1), code)
    call MPI_Wait(requests(1), status)
    call MPI_Get_count(status, MPI_INTEGER, n)
    call check(n == each .and. all(back == values), 'what iread_at read')
  end subroutine

  subroutine sizes()
    integer(MPI_OFFSET_KIND) :: bytes, total
    total = 4_MPI_OFFSET_KIND * (rounds + 1) * each * ranks
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_File_get_size(file, bytes)
    call check(bytes == total, 'the size')
    call MPI_File_set_size(file, total + 1000)
    call MPI_File_get_size(file, bytes)
    call check(bytes == total + 1000, 'the greater size')
    call MPI_File_set_size(file, total)
    call MPI_File_preallocate(file, total)
    call MPI_File_get_size(file, bytes)
    call check(bytes == total, 'the size again')
  end subroutine

  subroutine errors()
    type(MPI_Errhandler) :: mine, now
    type(MPI_File) :: none
    integer :: value = 0
    call MPI_File_create_errhandler(count_errors, mine)
    call MPI_File_set_errhandler(file, mine)
    call MPI_File_get_errhandler(file, now)
    call MPI_File_write_at(file, -1_MPI_OFFSET_KIND, value, 1, MPI_INTEGER, MPI_STATUS_IGNORE, code)
    call check(calls == 1, 'the handler was called once')
    call check(last == MPI_ERR_ARG, 'the handler saw MPI_ERR_ARG')
    call MPI_File_set_errhandler(file, MPI_ERRORS_RETURN)
    call MPI_File_write_at(file, -1_MPI_OFFSET_KIND, value, 1, MPI_INTEGER, MPI_STATUS_IGNORE, code)
    call check(calls == 1 .and. code /= MPI_SUCCESS, 'an error is returned')
    call MPI_Errhandler_free(mine)
    call MPI_Errhandler_free(now)
    ! The default, on no file.
    call MPI_File_open(MPI_COMM_WORLD, trim(path) // '.none', MPI_MODE_RDONLY, MPI_INFO_NULL, none, code)
    call MPI_Error_class(code, last)
    call check(last == MPI_ERR_NO_SUCH_FILE, 'a file that is not there')
  end subroutine
end program
